#include "graph/journal_scan.h"

#include "base/alloc.h"

#include <endian.h>
#include <errno.h>
#include <unistd.h>

const uint8_t rlm_journal_magic[RLM_JOURNAL_MAGIC_BYTES] = {'r', 'l', 'm', 'f',
                                                            'l', 'o', 'w', RLM_JOURNAL_VERSION};

enum {
    HEADER = RLM_RECORD_HEADER_BYTES,
    CHUNK_BYTES = 1024 * 1024,
    LONGEST = HEADER + RLM_RECORD_MAX_BYTES,
    SEARCH_WINDOW = 3 * LONGEST,
    STRIDE = 256, /* bytes between two remembered CRCs of a search window */
};

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t n;
    memcpy(&n, p, sizeof n);
    return le32toh(n);
}

static void store_u32(uint8_t *p, uint32_t n)
{
    n = htole32(n);
    memcpy(p, &n, sizeof n);
}

static uint32_t crc_offset(uint32_t crc, uint64_t offset)
{
    offset = htole64(offset);
    return rlm_crc32c(crc, &offset, sizeof offset);
}

/* Of length and kind, which stand around the CRC itself. */
static uint32_t crc_header(const uint8_t *header)
{
    uint8_t covered[5];
    memcpy(covered, header, 4);
    covered[4] = header[8];
    return rlm_crc32c(0, covered, sizeof covered);
}

void rlm_record_frame(enum rlm_record_kind kind,
                      rlm_str payload,
                      uint64_t offset,
                      uint8_t ret_header[RLM_RECORD_HEADER_BYTES])
{
    store_u32(ret_header, (uint32_t)payload.len);
    ret_header[8] = (uint8_t)kind;
    uint32_t crc = rlm_crc32c(crc_header(ret_header), payload.ptr, payload.len);
    store_u32(ret_header + 4, crc_offset(crc, offset));
}

/* Could a record stand here, with `left` bytes to the end of the file? Rules out nearly every place
 * in text (no zero byte), in zeros (no kind) and in random bytes. */
static inline bool plausible(const uint8_t *header, uint64_t left)
{
    uint32_t len = load_u32(header);
    return len <= RLM_RECORD_MAX_BYTES && header[8] != 0 && header[8] < RLM_RECORD_KIND_LIMIT &&
           len <= left - HEADER;
}

/* ---- the bytes ------------------------------------------------------------------------------- */

struct source {
    const uint8_t *memory; /* all of them, or NULL: */
    int fd;
    uint64_t size;
    uint8_t *window; /* a piece of the file */
    size_t window_cap, window_len;
    uint64_t window_offset;
};

/* `len` bytes (or more) at `offset`, valid until the next call. 1, 0 when the file turned out to be
 * shorter than it was, or an error. */
static int
get(struct source *s, uint64_t offset, size_t len, const uint8_t **ret_bytes, rlm_error **err)
{
    if (s->memory) {
        *ret_bytes = s->memory + offset;
        return 1;
    }
    if (offset < s->window_offset || offset + len > s->window_offset + s->window_len) {
        size_t wanted = len > CHUNK_BYTES ? len : CHUNK_BYTES;
        if (wanted > s->size - offset) {
            wanted = (size_t)(s->size - offset);
        }
        if (wanted > s->window_cap) {
            uint8_t *grown = rlm_realloc(s->window, wanted);
            if (!grown) {
                return rlm_error_nomem(err);
            }
            s->window = grown;
            s->window_cap = wanted;
        }
        s->window_offset = offset;
        s->window_len = 0;
        while (s->window_len < wanted) {
            ssize_t n = pread(s->fd, s->window + s->window_len, wanted - s->window_len,
                              (off_t)(offset + s->window_len));
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n < 0) {
                return rlm_error_set_errno(err, RLM_E_IO, errno, "reading at byte %llu",
                                           (unsigned long long)offset + s->window_len);
            }
            if (n == 0) {
                break;
            }
            s->window_len += (size_t)n;
        }
        if (s->window_len < len) {
            return 0;
        }
    }
    *ret_bytes = s->window + (offset - s->window_offset);
    return 1;
}

/* 1 when a valid record stands at `offset`, 0 when not, or an error. */
static int read_record(struct source *s,
                       uint64_t offset,
                       enum rlm_record_kind *ret_kind,
                       rlm_str *ret_payload,
                       rlm_error **err)
{
    const uint8_t *bytes;
    if (s->size - offset < HEADER) {
        return 0;
    }
    int r = get(s, offset, HEADER, &bytes, err);
    if (r <= 0 || !plausible(bytes, s->size - offset)) {
        return r < 0 ? r : 0;
    }
    size_t len = load_u32(bytes);
    if ((r = get(s, offset, HEADER + len, &bytes, err)) <= 0) {
        return r;
    }
    uint32_t crc = rlm_crc32c(crc_header(bytes), bytes + HEADER, len);
    if (crc_offset(crc, offset) != load_u32(bytes + 4)) {
        return 0;
    }
    *ret_kind = (enum rlm_record_kind)bytes[8];
    *ret_payload = (rlm_str){(const char *)bytes + HEADER, len};
    return 1;
}

/* ---- what follows a bad record --------------------------------------------------------------- */

/* Every byte behind a bad record may be where a valid one stands, and each may claim a payload of
 * 16 MiB: checking them one by one would take a hostile file years. A CRC is linear, so that of any
 * stretch follows from two CRCs of the window's beginning and one multiplication modulo the
 * polynomial; each place costs the same, whatever it claims. */
struct search {
    uint32_t low[4096];      /* x^(8n) */
    uint32_t high[4096 + 1]; /* x^(8 * 4096 * n) */
    const uint8_t *window;
    uint64_t window_offset;
    size_t window_len;
    uint32_t crcs[SEARCH_WINDOW / STRIDE + 1]; /* of the first STRIDE * i bytes of the window */
};

/* a * b modulo the Castagnoli polynomial, the highest power in the lowest bit. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0u - (a >> 31));
        b = (b >> 1) ^ (0x82F63B78u & (0u - (b & 1)));
    }
    return product;
}

static void fill_powers(struct search *q)
{
    q->low[0] = q->high[0] = 0x80000000u; /* x^0 */
    for (int i = 1; i < 4096; i++) {
        q->low[i] = multiply(q->low[i - 1], 0x00800000u); /* x^8 */
    }
    uint32_t step = multiply(q->low[4095], 0x00800000u);
    for (int i = 1; i <= 4096; i++) {
        q->high[i] = multiply(q->high[i - 1], step);
    }
}

static uint32_t crc_of_first(const struct search *q, size_t len)
{
    size_t i = len / STRIDE;
    return rlm_crc32c(q->crcs[i], q->window + i * STRIDE, len % STRIDE);
}

static bool valid_at(const struct search *q, uint64_t offset)
{
    size_t start = (size_t)(offset - q->window_offset) + HEADER;
    const uint8_t *header = q->window + start - HEADER;
    size_t len = load_u32(header);
    uint32_t before = crc_header(header) ^ crc_of_first(q, start);
    uint32_t shift = multiply(q->high[len / 4096], q->low[len % 4096]);
    uint32_t crc = multiply(shift, before) ^ crc_of_first(q, start + len);
    return crc_offset(crc, offset) == load_u32(header + 4);
}

/* Moves the window so that it starts at `offset`. As `get`. */
static int move_window(struct search *q, struct source *s, uint64_t offset, rlm_error **err)
{
    uint64_t left = s->size - offset;
    q->window_len = left < SEARCH_WINDOW ? (size_t)left : SEARCH_WINDOW;
    q->window_offset = offset;
    int r = get(s, offset, q->window_len, &q->window, err);
    for (size_t i = 1; r > 0 && i * STRIDE <= q->window_len; i++) {
        q->crcs[i] = rlm_crc32c(q->crcs[i - 1], q->window + (i - 1) * STRIDE, STRIDE);
    }
    return r;
}

/* Counts the valid records from `offset` on. */
static int count_valid(struct source *s, uint64_t offset, int64_t *ret_count, rlm_error **err)
{
    rlm_autofree struct search *q = rlm_calloc(1, sizeof *q);
    if (!q) {
        return rlm_error_nomem(err);
    }
    int64_t count = 0;
    fill_powers(q);
    while (s->size - offset >= HEADER) {
        uint64_t window_end = q->window_offset + q->window_len;
        if (offset + LONGEST > window_end && window_end < s->size) {
            int r = move_window(q, s, offset, err);
            if (r < 0) {
                return r;
            }
            if (r == 0) {
                break;
            }
        }
        const uint8_t *header = q->window + (offset - q->window_offset);
        if (plausible(header, s->size - offset) && valid_at(q, offset)) {
            count++;
            offset += HEADER + load_u32(header);
        } else {
            offset++;
        }
    }
    *ret_count = count;
    return 0;
}

/* ---- scanning -------------------------------------------------------------------------------- */

static int check_magic(struct source *s, rlm_error **err)
{
    const uint8_t *bytes;
    if (s->size == 0) {
        return rlm_error_set(err, RLM_E_PARSE, "the journal is empty: nothing was ever written");
    }
    size_t len = s->size < RLM_JOURNAL_MAGIC_BYTES ? (size_t)s->size : RLM_JOURNAL_MAGIC_BYTES;
    int r = get(s, 0, len, &bytes, err);
    if (r < 0) {
        return r;
    }
    size_t name_len = len < RLM_JOURNAL_MAGIC_BYTES ? len : RLM_JOURNAL_MAGIC_BYTES - 1;
    if (r == 0 || memcmp(bytes, rlm_journal_magic, name_len) != 0) {
        return rlm_error_set(err, RLM_E_PARSE, "the file \"journal\" is not the journal of a run");
    }
    if (len < RLM_JOURNAL_MAGIC_BYTES) {
        return rlm_error_set(err, RLM_E_PARSE,
                             "the journal ends after %zu bytes, within its first "
                             "line: nothing was written",
                             len);
    }
    int version = bytes[RLM_JOURNAL_MAGIC_BYTES - 1];
    if (version > RLM_JOURNAL_VERSION) {
        return rlm_error_set(
            err, RLM_E_VERSION,
            "the run has format version %d, this program reads up to %d: use a newer "
            "rlmflow",
            version, RLM_JOURNAL_VERSION);
    }
    if (version < 1) {
        return rlm_error_set(err, RLM_E_PARSE, "the journal has the impossible format version %d",
                             version);
    }
    return 0;
}

static int scan(struct source *s,
                rlm_journal_record record,
                void *arg,
                struct rlm_journal_scan *ret_scan,
                rlm_error **err)
{
    struct rlm_journal_scan found = {.damage = {.offset = -1}, .end = RLM_JOURNAL_MAGIC_BYTES};
    enum rlm_record_kind kind = 0;
    rlm_str payload;
    int r = check_magic(s, err);
    if (r < 0) {
        return r;
    }
    while ((r = read_record(s, found.end, &kind, &payload, err)) > 0) {
        if (record && (r = record(arg, kind, (int64_t)found.end, payload, err)) != 0) {
            return r;
        }
        found.records++;
        found.end += HEADER + payload.len;
    }
    if (r == 0 && found.end < s->size) {
        found.damage.offset = (int64_t)found.end;
        found.damage.lost_bytes = (int64_t)(s->size - found.end);
        r = count_valid(s, found.end + 1, &found.damage.valid_after, err);
    }
    if (r == 0) {
        *ret_scan = found;
    }
    return r;
}

int rlm_journal_scan_fd(int fd,
                        uint64_t size_bytes,
                        rlm_journal_record record,
                        void *arg,
                        struct rlm_journal_scan *ret_scan,
                        rlm_error **err)
{
    struct source s = {.fd = fd, .size = size_bytes};
    int r = scan(&s, record, arg, ret_scan, err);
    free(s.window);
    return r;
}

int rlm_journal_scan_bytes(const void *bytes,
                           size_t size_bytes,
                           rlm_journal_record record,
                           void *arg,
                           struct rlm_journal_scan *ret_scan,
                           rlm_error **err)
{
    struct source s = {.memory = bytes ? bytes : (const void *)"", .fd = -1, .size = size_bytes};
    return scan(&s, record, arg, ret_scan, err);
}
