#include "text.h"

#include <errno.h>

PyObject *text_to_python(const char *ptr, size_t len)
{
    return PyUnicode_DecodeUTF8(ptr ? ptr : "", (Py_ssize_t)len, "surrogatepass");
}

/* Whether its UTF-8 stands in the object itself, whatever its size. */
static bool is_ascii(PyObject *str)
{
    PyObject *answer = PyObject_CallMethod(str, "isascii", NULL);
    bool yes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

int text_from_python(PyObject *str, struct rlm_str *ret_text, PyObject **ret_keep)
{
    if (!PyUnicode_Check(str)) {
        PyErr_Format(PyExc_TypeError, "a str is wanted here, not %R", (PyObject *)Py_TYPE(str));
        return -1;
    }
    if (is_ascii(str)) {
        Py_ssize_t size;
        const char *own = PyUnicode_AsUTF8AndSize(str, &size);
        if (!own) {
            return -1;
        }
        Py_INCREF(str);
        *ret_text = (struct rlm_str){own, (size_t)size};
        *ret_keep = str;
        return 0;
    }
    PyObject *bytes = PyUnicode_AsEncodedString(str, "utf-8", "surrogatepass");
    char *ptr;
    Py_ssize_t len;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &ptr, &len) < 0) {
        Py_XDECREF(bytes);
        return -1;
    }
    *ret_text = (struct rlm_str){ptr, (size_t)len};
    *ret_keep = bytes;
    return 0;
}

int message_from_python(PyObject *str, struct rlm_str *ret_text, PyObject **ret_keep)
{
    PyObject *printable = PyUnicode_Check(str) ? PyObject_CallMethod(str, "replace", "s#s", "\0",
                                                                     (Py_ssize_t)1, "\\x00")
                                               : NULL;
    if (!printable && PyErr_Occurred()) {
        return -1;
    }
    int r = text_from_python(printable ? printable : str, ret_text, ret_keep);
    Py_XDECREF(printable);
    return r;
}

static PyObject *class_of(const rlm_error *err)
{
    switch (rlm_error_code(err)) {
    case RLM_E_NOMEM:
        return PyExc_MemoryError;
    case RLM_E_EXISTS:
        return PyExc_FileExistsError;
    case RLM_E_NOT_FOUND:
        return PyExc_LookupError;
    case RLM_E_INVAL:
    case RLM_E_PARSE:
    case RLM_E_LIMIT:
    case RLM_E_SCHEMA:
    case RLM_E_VERSION:
    case RLM_E_CORRUPT:
        return PyExc_ValueError;
    case RLM_E_BUSY:
        return PyExc_BlockingIOError;
    case RLM_E_TIMEOUT:
        return PyExc_TimeoutError;
    case RLM_E_UNSUPPORTED:
        return PyExc_NotImplementedError;
    case RLM_E_IO:
    case RLM_E_UNREACHABLE:
        return PyExc_OSError;
    default:
        return PyExc_RuntimeError;
    }
}

PyObject *raise_error_as(PyObject *class, rlm_error *take_err)
{
    const char *message = rlm_error_message(take_err);
    PyObject *text = text_to_python(message, strlen(message));
    if (text) {
        PyErr_SetObject(class ? class : class_of(take_err), text);
        Py_DECREF(text);
    }
    rlm_error_free(take_err);
    return NULL;
}

PyObject *raise_error(rlm_error *take_err)
{
    return raise_error_as(NULL, take_err);
}
