#include "model/http_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define FUNCTION(member)                                       \
    {                                                          \
        "curl_" #member, offsetof(struct http_library, member) \
    }
    FUNCTION(global_init),    FUNCTION(global_cleanup),      FUNCTION(getdate),
    FUNCTION(slist_append),   FUNCTION(slist_free_all),      FUNCTION(easy_init),
    FUNCTION(easy_cleanup),   FUNCTION(easy_setopt),         FUNCTION(easy_getinfo),
    FUNCTION(easy_strerror),  FUNCTION(multi_init),          FUNCTION(multi_cleanup),
    FUNCTION(multi_setopt),   FUNCTION(multi_add_handle),    FUNCTION(multi_remove_handle),
    FUNCTION(multi_assign),   FUNCTION(multi_socket_action), FUNCTION(multi_info_read),
    FUNCTION(multi_strerror),
#undef FUNCTION
};

int rlm_http_library_open(struct http_library *ret_library, rlm_error **err)
{
    void *handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED,
                             "libcurl could not be loaded (%s); install it (Debian and Ubuntu: apt "
                             "install libcurl4)",
                             dlerror());
    }
    struct http_library library;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            return rlm_error_set(err, RLM_E_UNSUPPORTED,
                                 "this libcurl has no %s; version 7.88 or newer is needed",
                                 functions[i].name);
        }
        memcpy((char *)&library + functions[i].offset, &symbol, sizeof symbol);
    }
    CURLcode code = library.global_init(CURL_GLOBAL_DEFAULT);
    if (code != CURLE_OK) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED, "libcurl could not be initialised: %s",
                             library.easy_strerror(code));
    }
    *ret_library = library;
    return 0;
}
