#include "view/sqlite_library.h"

#include "base/library.h"

#include <stddef.h>

static const struct rlm_library_function functions[] = {
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
    struct sqlite_library library;
    int r = rlm_library_open(
        "libsqlite3.so.0", "libsqlite3",
        "install version 3.12 or newer (Debian and Ubuntu: apt install libsqlite3-0), or export as JSON",
        functions, sizeof functions / sizeof *functions, &library, err);
    if (r < 0) {
        return r;
    }
    *ret_library = library;
    return 0;
}
