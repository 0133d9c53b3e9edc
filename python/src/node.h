/* A node as Python gives it: a dict with "type" and the members of Node.to_dict(). */
#pragma once

#include "engine.h"

struct node_of_python {
    struct rlm_node node; /* its texts live as long as `keep` */
    PyObject *keep;
};

/* -1 with an exception; else the caller releases `keep`. */
int node_from_python(PyObject *dict, struct node_of_python *ret_node);
