#include "node.h"

#include "text.h"

static int take_type(PyObject *dict, enum rlm_node_type *ret_type)
{
    PyObject *object = PyDict_GetItemString(dict, "type");
    const char *tag = object ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
    for (int type = RLM_USER_QUERY; tag && type <= RLM_DONE_OUTPUT; type++) {
        if (strcmp(tag, rlm_node_type_tag((enum rlm_node_type)type)) == 0) {
            *ret_type = (enum rlm_node_type)type;
            return 0;
        }
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%R is no type of a node", object ? object : Py_None);
    }
    return -1;
}

static int take_text(PyObject *dict, const char *name, PyObject *keep, struct rlm_str *ret_text)
{
    PyObject *object = PyDict_GetItemString(dict, name), *held = NULL;
    if (!object) {
        *ret_text = (struct rlm_str){"", 0};
        return 0;
    }
    int r = text_from_python(object, ret_text, &held);
    if (r == 0) {
        r = PyList_Append(keep, held);
        Py_DECREF(held);
    }
    return r;
}

static int take_agents(PyObject *dict, PyObject *keep, struct rlm_node *node)
{
    PyObject *list = PyDict_GetItemString(dict, "agents");
    Py_ssize_t n = list ? PyList_Size(list) : 0;
    PyObject *array =
        n > 0 ? PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(char *)) : NULL;
    if (n <= 0) {
        return (int)n;
    }
    if (!array || PyList_Append(keep, array) < 0) {
        Py_XDECREF(array);
        return -1;
    }
    Py_DECREF(array); /* `keep` has it */
    const char **ids = (const char **)(void *)PyBytes_AsString(array);
    for (Py_ssize_t i = 0; i < n; i++) {
        struct rlm_str id;
        PyObject *held;
        if (text_from_python(PyList_GetItem(list, i), &id, &held) < 0) {
            return -1;
        }
        ids[i] = id.ptr;
        int r = PyList_Append(keep, held);
        Py_DECREF(held);
        if (r < 0) {
            return -1;
        }
    }
    node->agents = ids;
    node->n_agents = (size_t)n;
    return 0;
}

int node_from_python(PyObject *dict, struct node_of_python *ret_node)
{
    struct node_of_python n = {.keep = PyList_New(0)};
    const struct {
        const char *name;
        struct rlm_str *text;
    } texts[] = {
        {"content", &n.node.content}, {"code", &n.node.code},         {"output", &n.node.output},
        {"error", &n.node.error},     {"result", &n.node.result},     {"reason", &n.node.reason},
        {"model", &n.node.model},     {"metadata", &n.node.metadata},
    };
    if (!n.keep) {
        return -1;
    }
    int r = PyDict_Check(dict) ? take_type(dict, &n.node.type) : -1;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a node is given as a dict");
    }
    for (size_t i = 0; r == 0 && i < sizeof texts / sizeof *texts; i++) {
        r = take_text(dict, texts[i].name, n.keep, texts[i].text);
    }
    if (r == 0) {
        r = take_agents(dict, n.keep, &n.node);
    }
    if (r < 0) {
        Py_DECREF(n.keep);
        return -1;
    }
    *ret_node = n;
    return 0;
}
