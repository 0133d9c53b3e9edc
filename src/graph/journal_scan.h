/* Framing: how records stand in a journal's bytes, and reading them back from bytes that may be
 * torn, damaged or hostile. Over a descriptor or over memory; no locks, no paths, no loop.
 */
#pragma once

#include "graph/journal.h"

enum {
    RLM_JOURNAL_MAGIC_BYTES = 8, /* what the file starts with */
    RLM_JOURNAL_VERSION = 1,     /* the last of them */
    RLM_RECORD_HEADER_BYTES = 9, /* u32 length, u32 crc32c, u8 kind */
};

extern const uint8_t rlm_journal_magic[RLM_JOURNAL_MAGIC_BYTES];

/* The header of a record that will stand at `offset`. */
void rlm_record_frame(enum rlm_record_kind kind,
                      rlm_str payload,
                      uint64_t offset,
                      uint8_t ret_header[RLM_RECORD_HEADER_BYTES]);

/* What a scan found. */
struct rlm_journal_scan {
    struct rlm_journal_damage damage;
    uint64_t records; /* whole ones, before any damage */
    uint64_t end;     /* the offset behind the last of them */
};

/* Reads the records of the first `size_bytes` of a file, or of a memory buffer. RLM_E_PARSE (no
 * journal, empty), RLM_E_VERSION, RLM_E_IO, RLM_E_NOMEM, or what `record` (may be NULL) returned. A
 * payload is borrowed for the time of the call. */
int rlm_journal_scan_fd(int fd,
                        uint64_t size_bytes,
                        rlm_journal_record record,
                        void *arg,
                        struct rlm_journal_scan *ret_scan,
                        rlm_error **err);
int rlm_journal_scan_bytes(const void *bytes,
                           size_t size_bytes,
                           rlm_journal_record record,
                           void *arg,
                           struct rlm_journal_scan *ret_scan,
                           rlm_error **err);
