// SPDX-License-Identifier: Apache-2.0
// By the stable C API of the interpreter that is in the process already; we link none.
#include "shim/preload/python_exception.hpp"

#include <dlfcn.h>

#include "shim/preload/driver.hpp"

namespace lowtide::preload {
namespace {

struct PyObject;  // opaque: the stable API works on pointers

template <class Function>
Function python(const char* name) noexcept {
  const RealLoader loader = real_loader();
  return loader.dlsym == nullptr ? nullptr : reinterpret_cast<Function>(loader.dlsym(RTLD_DEFAULT, name));
}

/// The functions of the stable API that are called. All there, or `complete` is false.
struct Interpreter {
  void* (*this_thread_state)() = python<void* (*)()>("PyGILState_GetThisThreadState");
  int (*ensure_gil)() = python<int (*)()>("PyGILState_Ensure");
  void (*release_gil)(int) = python<void (*)(int)>("PyGILState_Release");
  PyObject* (*modules)() = python<PyObject* (*)()>("PyImport_GetModuleDict");
  PyObject* (*get_item)(PyObject*, const char*) = python<PyObject* (*)(PyObject*, const char*)>("PyDict_GetItemString");
  PyObject* (*get_attribute)(PyObject*,
                             const char*) = python<PyObject* (*)(PyObject*, const char*)>("PyObject_GetAttrString");
  void (*clear_error)() = python<void (*)()>("PyErr_Clear");
  void (*drop)(PyObject*) = python<void (*)(PyObject*)>("Py_DecRef");
  unsigned long (*thread_ident)() = python<unsigned long (*)()>("PyThread_get_thread_ident");
  int (*raise_in)(unsigned long, PyObject*) = python<int (*)(unsigned long, PyObject*)>("PyThreadState_SetAsyncExc");
  PyObject** memory_error = python<PyObject**>("PyExc_MemoryError");
  PyObject** runtime_error = python<PyObject**>("PyExc_RuntimeError");

  bool complete() const noexcept {
    return this_thread_state && ensure_gil && release_gil && modules && get_item && get_attribute && clear_error &&
           drop && thread_ident && raise_in && memory_error && runtime_error;
  }
};

}  // namespace

bool raise_in_python(PythonError kind) noexcept {
  const Interpreter interpreter;
  if (!interpreter.complete() || interpreter.this_thread_state() == nullptr) return false;
  const int gil = interpreter.ensure_gil();
  PyObject* error = *interpreter.runtime_error;
  PyObject* of_torch = nullptr;
  if (kind == PythonError::out_of_memory) {
    PyObject* const torch = interpreter.get_item(interpreter.modules(), "torch");
    of_torch = torch == nullptr ? nullptr : interpreter.get_attribute(torch, "OutOfMemoryError");
    if (of_torch == nullptr) interpreter.clear_error();
    error = of_torch != nullptr ? of_torch : *interpreter.memory_error;
  }
  const int raised = interpreter.raise_in(interpreter.thread_ident(), error);
  if (of_torch != nullptr) interpreter.drop(of_torch);
  interpreter.release_gil(gil);
  return raised == 1;
}

}  // namespace lowtide::preload
