/* The types of the module that stand for things of the engine. */
#pragma once

#include "engine.h"

extern PyType_Spec model_spec, runtime_spec, run_spec, graph_spec, tree_spec;
extern PyObject *model_type, *runtime_type, *graph_type, *tree_type;

/* What a Model or Runtime stands for; NULL with a TypeError. */
rlm_model *model_of(PyObject *object);
rlm_runtime *runtime_of(PyObject *object);

/* A Graph of an agent of the tree `root`, which lives as long as `owner`. */
PyObject *graph_new(PyObject *owner, rlm_graph *root, const char *agent_id);
