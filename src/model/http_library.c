#include "model/http_library.h"

#include "base/library.h"

#include <stddef.h>

static const struct rlm_library_function functions[] = {
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
    struct http_library library;
    int r =
        rlm_library_open("libcurl.so.4", "libcurl",
                         "install version 7.88 or newer (Debian and Ubuntu: apt install libcurl4)",
                         functions, sizeof functions / sizeof *functions, &library, err);
    if (r < 0) {
        return r;
    }
    CURLcode code = library.global_init(CURL_GLOBAL_DEFAULT);
    if (code != CURLE_OK) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED, "libcurl could not be initialised: %s",
                             library.easy_strerror(code));
    }
    *ret_library = library;
    return 0;
}
