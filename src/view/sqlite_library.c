#include "view/sqlite_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define FUNCTION(member)                                            \
    {                                                               \
        "sqlite3_" #member, offsetof(struct sqlite_library, member) \
    }
    FUNCTION(open_v2),      FUNCTION(close_v2),   FUNCTION(exec),        FUNCTION(prepare_v2),
    FUNCTION(reset),        FUNCTION(bind_null),  FUNCTION(bind_text64), FUNCTION(bind_blob64),
    FUNCTION(step),         FUNCTION(bind_int64), FUNCTION(finalize),    FUNCTION(errmsg),
    FUNCTION(system_errno),
#undef FUNCTION
};

int rlm_sqlite_library_open(struct sqlite_library *ret_library, rlm_error **err)
{
    void *handle = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED,
                             "libsqlite3 could not be loaded (%s); install it (Debian and Ubuntu: "
                             "apt install libsqlite3-0), or export as JSON",
                             dlerror());
    }
    struct sqlite_library library;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            return rlm_error_set(err, RLM_E_UNSUPPORTED,
                                 "this libsqlite3 has no %s; version 3.12 or newer is needed",
                                 functions[i].name);
        }
        memcpy((char *)&library + functions[i].offset, &symbol, sizeof symbol);
    }
    *ret_library = library;
    return 0;
}
