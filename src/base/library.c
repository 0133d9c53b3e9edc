#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

int rlm_library_open(const char *file,
                     const char *name,
                     const char *advice,
                     const struct rlm_library_function *functions,
                     size_t n_functions,
                     void *ret_functions,
                     rlm_error **err)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED, "%s could not be loaded (%s); %s", name,
                             dlerror(), advice);
    }
    for (size_t i = 0; i < n_functions; i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            return rlm_error_set(err, RLM_E_UNSUPPORTED, "this %s has no %s; %s", name,
                                 functions[i].name, advice);
        }
        memcpy((char *)ret_functions + functions[i].offset, &symbol, sizeof symbol);
    }
    return 0;
}
