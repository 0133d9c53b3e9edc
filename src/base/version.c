#include "rlmflow.h"

const char *rlm_version(void)
{
    return RLM_VERSION;
}
