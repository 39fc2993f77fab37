/* Plans of the kinds of products: for products.cu, which makes products, and
 * tune.cu, which lists the algorithms of a kind and has one chosen. */
#ifndef DYNMO_PLANS_CUH
#define DYNMO_PLANS_CUH

#include "blaslt.cuh"
#include "products.cuh"

#include <array>
#include <map>

/* TRY(call) ends the function with the status of a call that failed. */
#define TRY(call)                                                                                                      \
	do {                                                                                                               \
		cublasStatus_t status_of_call = (call);                                                                        \
		if (status_of_call != CUBLAS_STATUS_SUCCESS) return status_of_call;                                            \
	} while (0)

/* cuBLAS itself takes 32 MiB on Hopper. */
constexpr size_t workspace_bytes = 32 << 20;

/* Everything that an algorithm is chosen by: m, n, k, the flags, the operands that are
 * aligned. */
using kind = std::array<int32_t, 5>;

/* The bits of a kind's flags; activation's are from FLAG_ACTIVATION on. */
enum {
	FLAG_TRANSPOSE_A = 1,
	FLAG_TRANSPOSE_B = 2,
	FLAG_WIDE = 4,
	FLAG_BIAS = 8,
	FLAG_ADD = 16,
	FLAG_SUMS = 32,
	FLAG_ACTIVATION = 64
};

/* The operands whose alignment matters, in the order of kind's bits. */
enum { AT_A, AT_B, AT_ADD, AT_D, AT_BIAS, AT_AUX, AT_SUMS, OPERANDS };

kind kind_of(const product &p);

/* The plan of a kind of product. plain: cuBLASLt is not to make it. */
struct plan {
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	bool plain;
};

struct products {
	cublasLtHandle_t handle;
	void *workspace;
	std::map<kind, plan> plans;
	int64_t fallbacks; /* products that gemm_plain.cu made */
};

/* offered says whether cuBLASLt knows the product: columns of aux are multiples of
 * 8, says its manual, and of vectors some versions say that they are invalid. */
bool offered(const product &p);

/* describe makes the descriptors of a product, and points them at addresses that are as
 * aligned as its operands: no rank's memory decides. */
cublasStatus_t describe(const dynmo_cuda *k, const product &p, plan *t);

/* propose asks for the algorithms of a product that describe described: at most `most`,
 * the one that cuBLASLt takes to be the fastest first. *found may be 0. */
cublasStatus_t propose(const dynmo_cuda *k, const product &p, const plan &t, int most,
	cublasLtMatmulHeuristicResult_t *list, int *found);

/* discard gives the descriptors back. */
void discard(const plan &t);

#endif
