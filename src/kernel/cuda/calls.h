/* The library's calls as functions of its table, which cgo cannot call through:
 * call_NAME(table, operands…). */
#ifndef DYNMO_CUDA_CALLS_H
#define DYNMO_CUDA_CALLS_H

#include "dynmo_cuda.h"

#define INSIDE(...) __VA_ARGS__ /* of brackets */
#define CALL(name, parameters, arguments)                                                                              \
	static inline int32_t call_##name(const dynmo_cuda_table *calls_of_library, INSIDE parameters) {                   \
		return calls_of_library->name arguments;                                                                       \
	}
DYNMO_CUDA_CALLS(CALL)
#undef CALL
#undef INSIDE

#endif
