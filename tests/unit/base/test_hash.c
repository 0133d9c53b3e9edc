#include "base/alloc.h"
#include "base/hash.h"
#include "harness.h"

#include <stdint.h>

TEST(sha256_known_vectors)
{
    static const struct {
        const char *text;
        const char *hash;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char hex[RLM_SHA256_HEX + 1];
        CHECK_INT(rlm_sha256_of(rlm_str_of(vectors[i].text), hex), 0);
        CHECK_TEXT(hex, vectors[i].hash);
    }
    char hex[RLM_SHA256_HEX + 1];
    CHECK_INT(rlm_sha256_of(RLM_STR_NONE, hex), 0);
    CHECK_TEXT(hex, vectors[0].hash);
}

TEST(sha256_in_parts_is_the_same)
{
    rlm_sha256 *h = rlm_sha256_new();
    char block[1000];
    char hex[RLM_SHA256_HEX + 1];
    memset(block, 'a', sizeof block);
    for (int i = 0; i < 1000; i++) {
        rlm_sha256_add(h, block, 999);
        rlm_sha256_add(h, block, 1);
        rlm_sha256_add(h, NULL, 0);
    }
    rlm_sha256_hex(h, hex);
    rlm_sha256_free(h);
    rlm_sha256_free(NULL);
    CHECK_TEXT(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

typedef uint32_t crc_function(uint32_t crc, const void *ptr, size_t len);

/* The check value of the catalogue of CRCs, and the four examples of RFC 3720, B.4. */
static void check_vectors(crc_function *crc32c)
{
    unsigned char bytes[32];
    CHECK_INT(crc32c(0, "", 0), 0);
    CHECK_INT(crc32c(0, "123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    CHECK_INT(crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    CHECK_INT(crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)i;
    }
    CHECK_INT(crc32c(0, bytes, sizeof bytes), 0x46dd794e);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)(31 - i);
    }
    CHECK_INT(crc32c(0, bytes, sizeof bytes), 0x113fdb5c);
}

TEST(crc32c_known_vectors)
{
    check_vectors(rlm_crc32c);
}

TEST(crc32c_by_tables_known_vectors)
{
    check_vectors(rlm_crc32c_portable);
}

TEST(crc32c_hardware_and_tables_agree_at_every_length_and_offset)
{
    unsigned char bytes[300];
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        random = random * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(random >> 24);
    }
    for (size_t start = 0; start < 9; start++) {
        for (size_t len = 0; start + len <= sizeof bytes; len++) {
            uint32_t crc = (uint32_t)(len * 0x9e3779b9u);
            CHECK(rlm_crc32c(crc, bytes + start, len) ==
                  rlm_crc32c_portable(crc, bytes + start, len));
        }
    }
}

TEST(crc32c_goes_on_from_a_part)
{
    const char text[] = "a record in three parts";
    uint32_t whole = rlm_crc32c(0, text, sizeof text);
    for (size_t cut = 0; cut <= sizeof text; cut++) {
        uint32_t crc = rlm_crc32c(0, text, cut);
        CHECK(rlm_crc32c(crc, text + cut, sizeof text - cut) == whole);
    }
}
