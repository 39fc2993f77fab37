/* Declarations that the emulator's own tests share. */
#ifndef DYNMO_EMULATE_SELFTEST_H
#define DYNMO_EMULATE_SELFTEST_H

#include <cstdio>
#include <vector>

#include "../cuda/device.cuh"

#include "hooks.h"

inline int failures;

#define CHECK(x)                                                                                                       \
	do                                                                                                                 \
		if (!(x)) {                                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                                    \
			failures++;                                                                                                \
		}                                                                                                              \
	while (0)

/* Memory of the device that ends with the test. */
template <typename T> struct Array {
	T *at = nullptr;
	explicit Array(size_t n) { CHECK(cudaMalloc(&at, n * sizeof(T)) == cudaSuccess); }
	~Array() { CHECK(cudaFree(at) == cudaSuccess); }
	std::vector<T> read(size_t n) const
	{
		std::vector<T> host(n);
		CHECK(cudaMemcpy(host.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
		return host;
	}
};

void test_graph();
void test_spoiled_captures();

#endif
