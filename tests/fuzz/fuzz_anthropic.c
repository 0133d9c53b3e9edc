/* Any bytes as the answer of a server that speaks /v1/messages. */
#include "fuzz_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_dialect(&rlm_dialect_anthropic, (rlm_str){(const char *)data, size});
    return 0;
}
