/* The dense products of a rank: cuBLASLt's handle, its workspace and its earlier
 * answers. They belong to the context that is current at products_open. */
#ifndef DYNMO_PRODUCTS_CUH
#define DYNMO_PRODUCTS_CUH

#include "device.cuh"

/* k->products points at this. products_close takes null too. */
int32_t products_open(dynmo_cuda *k);
void products_close(struct products *p);

/* dynmo_cuda_missing returns why cuBLASLt cannot be used, null if it can. The library has it as a symbol. */
extern "C" __attribute__((visibility("default"))) const char *dynmo_cuda_missing(void);

/* products_name writes the library's name and version: bits depend on both. */
void products_name(char *text, int size);

/* A call returns a status of cuBLASLt as PRODUCTS_STATUS + status. */
enum { PRODUCTS_STATUS = 10000 };

enum activation {
	ACTIVATION_NONE,
	ACTIVATION_GELU, /* aux = x, D = gelu(x) */
	ACTIVATION_DGELU /* D = x·gelu'(aux) */
};

/* x (m, n) = op(A) (m, k) · op(B) (k, n) + bias (m) + add (m, n), D = activation(x).
 * Matrices lie by columns, as in BLAS. D (m, n) is therefore the matrix (n, m) of
 * kernel.go, which lies by rows. A, B, bias and aux have elements E. D and add
 * have float elements if wide, else E. add may be D. sums (n), wide only, becomes
 * Σ_k op(B), since the product reads op(B) anyway. */
struct product {
	int32_t m, n, k;
	int32_t transpose_a, transpose_b; /* A lies as (k, m), B as (n, k) */
	int32_t wide;
	enum activation activation;
	const void *a, *b, *bias, *add; /* the last two may be null */
	void *d, *aux;
	float *sums; /* or null, and null beside a bias */
};

/* multiply makes a product without sums. */
int32_t multiply(const dynmo_cuda *k, void *stream, const struct product *p);

/* library_product makes a product, or sets *refused where cuBLASLt has no algorithm. */
int32_t library_product(const dynmo_cuda *k, void *stream, const struct product *p, int *refused);

/* plain_product makes a product of any shape without sums, however its operands are
 * aligned, where cuBLASLt has no algorithm. */
int32_t plain_product(const dynmo_cuda *k, void *stream, const struct product *p);

/* product_of sets *p to the product of a call (DYNMO_CUDA_FORWARD …), with operands
 * that are nowhere, all aligned. */
int32_t product_of(int32_t call, int32_t biased, int32_t n, int32_t c, int32_t o, struct product *p);

#endif
