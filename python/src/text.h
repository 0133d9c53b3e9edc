/* Text between C and Python. The engine's is WTF-8, which is UTF-8 with "surrogatepass". */
#pragma once

#include "engine.h"

PyObject *text_to_python(const char *ptr, size_t len);
static inline PyObject *str_to_python(struct rlm_str s)
{
    return text_to_python(s.ptr, s.len);
}

/* The bytes of a str as the engine wants them; `*ret_keep` is what holds them (free with Py_XDECREF).
 * -1 with an exception: not a str. */
int text_from_python(PyObject *str, struct rlm_str *ret_text, PyObject **ret_keep);

/* The same of a message, which ends at a NUL in C: one in it becomes an escape. */
int message_from_python(PyObject *str, struct rlm_str *ret_text, PyObject **ret_keep);

/* Raises what an error of the library says; frees it. Always NULL. */
PyObject *raise_error(rlm_error *take_err);
/* The same as a class of its own; NULL: by the error's code. */
PyObject *raise_error_as(PyObject *class, rlm_error *take_err);
