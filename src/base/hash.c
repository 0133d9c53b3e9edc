#include "base/hash.h"

#include "base/alloc.h"

#include <openssl/evp.h>
#include <stdlib.h>

#if defined(__x86_64__)
#    include <nmmintrin.h>
#endif

struct rlm_sha256 {
    EVP_MD_CTX *context;
};

rlm_sha256 *rlm_sha256_new(void)
{
    rlm_sha256 *h = rlm_malloc(sizeof *h);
    if (!h) {
        return NULL;
    }
    h->context = EVP_MD_CTX_new();
    if (!h->context || EVP_DigestInit_ex(h->context, EVP_sha256(), NULL) != 1) {
        rlm_sha256_free(h);
        return NULL;
    }
    return h;
}

void rlm_sha256_add(rlm_sha256 *h, const void *ptr, size_t len)
{
    /* Once initialised this allocates nothing and cannot fail, except after the end (a programmer
     * error). A wrong hash would give a content the name of another. */
    if (EVP_DigestUpdate(h->context, ptr, len) != 1) {
        abort();
    }
}

void rlm_sha256_hex(rlm_sha256 *h, char ret_hex[RLM_SHA256_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[RLM_SHA256_SIZE];
    if (EVP_DigestFinal_ex(h->context, hash, NULL) != 1) {
        abort();
    }
    for (size_t i = 0; i < sizeof hash; i++) {
        ret_hex[2 * i] = digits[hash[i] >> 4];
        ret_hex[2 * i + 1] = digits[hash[i] & 15];
    }
    ret_hex[RLM_SHA256_HEX] = '\0';
}

void rlm_sha256_free(rlm_sha256 *h)
{
    if (h) {
        EVP_MD_CTX_free(h->context);
        free(h);
    }
}

int rlm_sha256_of(rlm_str s, char ret_hex[RLM_SHA256_HEX + 1])
{
    rlm_sha256 *h = rlm_sha256_new();
    if (!h) {
        return RLM_E_NOMEM;
    }
    rlm_sha256_add(h, s.ptr, s.len);
    rlm_sha256_hex(h, ret_hex);
    rlm_sha256_free(h);
    return 0;
}

/* The CRC is linear: the entry of a byte is the XOR of the entries of its bits. So eight numbers
 * give a whole table of 256 while compiling, and no table needs to be filled at run time. */
#define BIT(n, i, value) ((n) >> (i)&1 ? (value) : 0u)
#define ENTRY(n, a, b, c, d, e, f, g, h)                                                       \
    (BIT(n, 0, a) ^ BIT(n, 1, b) ^ BIT(n, 2, c) ^ BIT(n, 3, d) ^ BIT(n, 4, e) ^ BIT(n, 5, f) ^ \
     BIT(n, 6, g) ^ BIT(n, 7, h))
#define FOUR(n, ...)                                                             \
    ENTRY(n, __VA_ARGS__), ENTRY(n + 1, __VA_ARGS__), ENTRY(n + 2, __VA_ARGS__), \
        ENTRY(n + 3, __VA_ARGS__)
#define SIXTEEN(n, ...)                                                       \
    FOUR(n, __VA_ARGS__), FOUR(n + 4, __VA_ARGS__), FOUR(n + 8, __VA_ARGS__), \
        FOUR(n + 12, __VA_ARGS__)
#define SIXTY_FOUR(n, ...)                                                               \
    SIXTEEN(n, __VA_ARGS__), SIXTEEN(n + 16, __VA_ARGS__), SIXTEEN(n + 32, __VA_ARGS__), \
        SIXTEEN(n + 48, __VA_ARGS__)
#define SLICE(...)                                                                             \
    {                                                                                          \
        SIXTY_FOUR(0, __VA_ARGS__), SIXTY_FOUR(64, __VA_ARGS__), SIXTY_FOUR(128, __VA_ARGS__), \
            SIXTY_FOUR(192, __VA_ARGS__)                                                       \
    }

/* Row k, column j: the CRC of the byte 1 << j with k zero bytes after it (polynomial 0x82f63b78). */
/* clang-format off */
static const uint32_t slices[8][256] = {
    SLICE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    SLICE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    SLICE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    SLICE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    SLICE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    SLICE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    SLICE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    SLICE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};
/* clang-format on */

static uint32_t load_le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t rlm_crc32c_portable(uint32_t crc, const void *ptr, size_t len)
{
    const unsigned char *p = ptr;
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t low = load_le32(p) ^ crc;
        uint32_t high = load_le32(p + 4);
        crc = slices[7][low & 255] ^ slices[6][low >> 8 & 255] ^ slices[5][low >> 16 & 255] ^
              slices[4][low >> 24] ^ slices[3][high & 255] ^ slices[2][high >> 8 & 255] ^
              slices[1][high >> 16 & 255] ^ slices[0][high >> 24];
    }
    for (; len; p++, len--) {
        crc = slices[0][(crc ^ *p) & 255] ^ crc >> 8;
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc32c_hardware(uint32_t crc, const void *ptr, size_t len)
{
    const unsigned char *p = ptr;
    uint64_t wide = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (; len; p++, len--) {
        narrow = _mm_crc32_u8(narrow, *p);
    }
    return ~narrow;
}
#endif

uint32_t rlm_crc32c(uint32_t crc, const void *ptr, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return crc32c_hardware(crc, ptr, len);
    }
#endif
    return rlm_crc32c_portable(crc, ptr, len);
}
