/* Dense products by cuBLASLt: 2·n·c·o operations a call, on tensor cores for bf16
 * with sums in float, and in plain float (no TF32) for float. Biases, the residual
 * and GELU are part of the product's last pass over its result. A bias's gradient
 * is summed by the product for the weight's, which reads dout anyway: cuBLASLt
 * overwrites, so the sums go to the workspace and are added from there.
 *
 * The algorithm is cuBLASLt's first choice, asked for once for each kind of
 * product: it depends on shapes, on which operands there are, and on whether each
 * begins at a multiple of 16 bytes, so that every rank takes the same. Sums that
 * are cut along k are put together in float, in a step of their own: of the schemes
 * there are, the one that neither rounds in between nor writes D twice. What
 * cuBLASLt cannot do gemm_plain.cu does. */
#include "products.cuh"

#include "columns.cuh"

#include <cublasLt.h>

#include <array>
#include <cstdio>
#include <map>

namespace {

/* TRY(call) ends the function with the status of a call that failed. */
#define TRY(call)                                                                                                      \
	do {                                                                                                               \
		cublasStatus_t status_of_call = (call);                                                                        \
		if (status_of_call != CUBLAS_STATUS_SUCCESS) return status_of_call;                                            \
	} while (0)

int32_t status(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCTS_STATUS + s; }

/* cuBLAS itself takes 32 MiB on Hopper. */
constexpr size_t workspace_bytes = 32 << 20;

/* Everything that an algorithm is chosen by. */
using kind = std::array<int32_t, 5>;

/* The plan of a kind of product. cuBLASLt has no algorithm if plain. */
struct plan {
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	bool plain;
};

} // namespace

struct products {
	cublasLtHandle_t handle;
	void *workspace;
	std::map<kind, plan> plans;
};

namespace {

/* The operands whose alignment matters, in the order of kind's bits. */
enum { AT_A, AT_B, AT_ADD, AT_D, AT_BIAS, AT_AUX, AT_SUMS, OPERANDS };

bool aligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

int32_t alignment_bits(const product &p) {
	const void *operands[OPERANDS] = {p.a, p.b, p.add, p.d, p.bias, p.aux, p.sums};
	int32_t bits = 0;
	for (int i = 0; i < OPERANDS; i++) bits |= aligned(operands[i]) << i;
	return bits;
}

kind kind_of(const product &p) {
	int32_t flags = p.transpose_a | p.transpose_b << 1 | p.wide << 2 | (p.bias != nullptr) << 3 |
		(p.add != nullptr) << 4 | p.activation << 5 | (p.sums != nullptr) << 7;
	return {p.m, p.n, p.k, flags, alignment_bits(p)};
}

cudaDataType_t element(const dynmo_cuda *k) { return k->type == DYNMO_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

template <typename T> cublasStatus_t set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, T value) {
	return cublasLtMatmulDescSetAttribute(d, name, &value, sizeof value);
}

template <typename T>
cublasStatus_t set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, T value) {
	return cublasLtMatmulPreferenceSetAttribute(p, name, &value, sizeof value);
}

uint32_t epilogue(const product &p) {
	bool bias = p.bias != nullptr;
	if (p.sums) return CUBLASLT_EPILOGUE_BGRADB;
	switch (p.activation) {
	case ACTIVATION_GELU: return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
	case ACTIVATION_DGELU: return CUBLASLT_EPILOGUE_DGELU;
	default: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	}
}

/* vector_of returns what the epilogue reads as a bias, or writes as its gradient. */
const void *vector_of(const product &p) { return p.sums ? p.sums : p.bias; }

/* point tells the operation where bias, or the sums that become a bias's gradient,
 * and aux are: to choose an algorithm, by how they are aligned, and to run one. */
cublasStatus_t point(const plan &t, const product &p, const void *bias, const void *aux) {
	if (p.bias || p.sums) TRY(set(t.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
	if (p.activation != ACTIVATION_NONE) TRY(set(t.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
	return CUBLAS_STATUS_SUCCESS;
}

/* describe makes the descriptors of a product. */
cublasStatus_t describe(const dynmo_cuda *k, const product &p, plan *t) {
	cudaDataType_t e = element(k);
	TRY(cublasLtMatmulDescCreate(&t->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	int32_t turn_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_TRANSA, turn_a));
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_TRANSB, turn_b));
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p)));
	if (p.activation != ACTIVATION_NONE)
		TRY(set(t->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(p.m)));
	int32_t rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
	TRY(cublasLtMatrixLayoutCreate(&t->a, e, rows_a, p.transpose_a ? p.m : p.k, rows_a));
	TRY(cublasLtMatrixLayoutCreate(&t->b, e, rows_b, p.transpose_b ? p.k : p.n, rows_b));
	return cublasLtMatrixLayoutCreate(&t->d, p.wide ? CUDA_R_32F : e, p.m, p.n, p.m);
}

/* prefer says what an algorithm may use and rely on. */
cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const product &p, uint32_t element_bytes) {
	int32_t bits = alignment_bits(p);
	auto alignment = [&](int at, uint32_t bytes) { return bits >> at & 1 ? 16 : bytes; };
	uint32_t result_bytes = p.wide ? sizeof(float) : element_bytes;
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
		static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(AT_A, element_bytes)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(AT_B, element_bytes)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.add ? AT_ADD : AT_D, result_bytes)));
	return set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(AT_D, result_bytes));
}

/* choose asks for t's algorithm. cuBLASLt looks at how bias and aux are aligned but
 * not at what they point at: it is shown addresses that are just as aligned as
 * kind says, so that no rank's memory decides. */
cublasStatus_t choose(const products &s, const product &p, uint32_t element_bytes, plan *t) {
	auto like = [&](const void *x) {
		return reinterpret_cast<void *>(uintptr_t{4096} + (aligned(x) ? 16 : element_bytes));
	};
	TRY(point(*t, p, like(vector_of(p)), like(p.aux)));
	cublasLtMatmulPreference_t preference;
	TRY(cublasLtMatmulPreferenceCreate(&preference));
	cublasStatus_t outcome = prefer(preference, p, element_bytes);
	cublasLtMatmulHeuristicResult_t result = {};
	int found = 0;
	if (outcome == CUBLAS_STATUS_SUCCESS)
		outcome = cublasLtMatmulAlgoGetHeuristic(s.handle, t->operation, t->a, t->b, t->d, t->d, preference, 1, &result,
			&found);
	if (outcome == CUBLAS_STATUS_SUCCESS && found > 0) outcome = result.state;
	t->algorithm = result.algo;
	t->plain = outcome == CUBLAS_STATUS_NOT_SUPPORTED || (outcome == CUBLAS_STATUS_SUCCESS && found == 0);
	cublasLtMatmulPreferenceDestroy(preference);
	return t->plain ? CUBLAS_STATUS_SUCCESS : outcome;
}

void discard(const plan &t) {
	if (t.operation) cublasLtMatmulDescDestroy(t.operation);
	for (cublasLtMatrixLayout_t layout : {t.a, t.b, t.d})
		if (layout) cublasLtMatrixLayoutDestroy(layout);
}

/* offered says whether cuBLASLt knows the product: columns of aux are multiples of
 * 8, says its manual, and of vectors some versions say that they are invalid. */
bool offered(const product &p) {
	return p.m > 1 && p.n > 1 && p.k > 1 && (p.activation == ACTIVATION_NONE || p.m % 8 == 0);
}

/* plan_of sets *t to the plan of a product's kind, which it makes if it is new. */
cublasStatus_t plan_of(const dynmo_cuda *k, const product &p, const plan **t) {
	products &s = *k->products;
	kind key = kind_of(p);
	auto known = s.plans.find(key);
	if (known == s.plans.end()) {
		plan made = {};
		made.plain = !offered(p);
		uint32_t element_bytes = k->type == DYNMO_CUDA_BF16 ? sizeof(bf16) : sizeof(float);
		cublasStatus_t outcome = CUBLAS_STATUS_SUCCESS;
		if (!made.plain) outcome = describe(k, p, &made);
		if (!made.plain && outcome == CUBLAS_STATUS_SUCCESS) outcome = choose(s, p, element_bytes, &made);
		if (outcome != CUBLAS_STATUS_SUCCESS) {
			discard(made);
			return outcome;
		}
		known = s.plans.emplace(key, made).first;
	}
	*t = &known->second;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t run(const products &s, void *stream, const plan &t, const product &p) {
	TRY(point(t, p, vector_of(p), p.aux));
	float alpha = 1, beta = p.add ? 1 : 0;
	return cublasLtMatmul(s.handle, t.operation, &alpha, p.a, t.a, p.b, t.b, &beta, p.add ? p.add : p.d, t.d, p.d, t.d,
		&t.algorithm, s.workspace, workspace_bytes, static_cast<cudaStream_t>(stream));
}

/* by_library makes a product, or returns that cuBLASLt does not support it. */
cublasStatus_t by_library(const dynmo_cuda *k, void *stream, const product &p) {
	const plan *t;
	TRY(plan_of(k, p, &t));
	return t->plain ? CUBLAS_STATUS_NOT_SUPPORTED : run(*k->products, stream, *t, p);
}

int32_t multiply(const dynmo_cuda *k, void *stream, const product &p) {
	if (p.m == 0 || p.n == 0) return 0;
	cublasStatus_t outcome = by_library(k, stream, p);
	return outcome == CUBLAS_STATUS_NOT_SUPPORTED ? plain_product(k, stream, &p) : status(outcome);
}

/* forward is outᵀ (o, n) = weight (o, c) · inpᵀ (c, n). */
product forward(void *out, const void *inp, const void *weight, const void *bias, int32_t n, int32_t c, int32_t o) {
	product p = {};
	p.m = o, p.n = n, p.k = c;
	p.a = weight, p.transpose_a = 1;
	p.b = inp;
	p.bias = bias;
	p.d = out;
	return p;
}

/* backward is dinpᵀ (c, n) = weightᵀ (c, o) · doutᵀ (o, n). */
product backward(void *dinp, const void *dout, const void *weight, int32_t n, int32_t c, int32_t o) {
	product p = {};
	p.m = c, p.n = n, p.k = o;
	p.a = weight;
	p.b = dout;
	p.d = dinp;
	return p;
}

} // namespace

int32_t dynmo_cuda_matmul_forward(dynmo_cuda *k, void *stream, void *out, const void *inp, const void *weight,
	const void *bias, const void *add, int32_t n, int32_t c, int32_t o) {
	product p = forward(out, inp, weight, bias, n, c, o);
	p.add = add;
	return multiply(k, stream, p);
}

int32_t dynmo_cuda_matmul_gelu(dynmo_cuda *k, void *stream, void *out, void *pre, const void *inp, const void *weight,
	const void *bias, int32_t n, int32_t c, int32_t o) {
	product p = forward(out, inp, weight, bias, n, c, o);
	p.activation = ACTIVATION_GELU;
	p.aux = pre;
	return multiply(k, stream, p);
}

int32_t dynmo_cuda_matmul_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *weight,
	int32_t n, int32_t c, int32_t o) {
	return multiply(k, stream, backward(dinp, dout, weight, n, c, o));
}

int32_t dynmo_cuda_matmul_backward_gelu(dynmo_cuda *k, void *stream, void *dpre, const void *dout, const void *weight,
	const void *pre, int32_t n, int32_t c, int32_t o) {
	product p = backward(dpre, dout, weight, n, c, o);
	p.activation = ACTIVATION_DGELU;
	p.aux = const_cast<void *>(pre);
	return multiply(k, stream, p);
}

/* dweightᵀ (c, o) += inpᵀ (c, n) · dout (n, o). Where cuBLASLt has no product that
 * sums, the bias's gradient is a pass over dout of its own. */
int32_t dynmo_cuda_matmul_backward_weight(dynmo_cuda *k, void *stream, float *dweight, float *dbias, const void *dout,
	const void *inp, int32_t n, int32_t c, int32_t o) {
	if (n == 0) return 0;
	product p = {};
	p.m = c, p.n = o, p.k = n;
	p.a = inp;
	p.b = dout, p.transpose_b = 1;
	p.add = p.d = dweight, p.wide = 1;
	if (!dbias) return multiply(k, stream, p);
	void *sums;
	if (int32_t failed = workspace(k, sizeof(float) * o, &sums)) return failed;
	p.sums = static_cast<float *>(sums);
	cublasStatus_t outcome = by_library(k, stream, p);
	if (outcome == CUBLAS_STATUS_SUCCESS) return dynmo_cuda_accumulate(k, stream, dbias, dbias, p.sums, o);
	if (outcome != CUBLAS_STATUS_NOT_SUPPORTED) return status(outcome);
	p.sums = nullptr;
	if (int32_t failed = multiply(k, stream, p)) return failed;
	return k->type == DYNMO_CUDA_BF16 ? column_sums(k, stream, dbias, static_cast<const bf16 *>(dout), n, o)
									  : column_sums(k, stream, dbias, static_cast<const float *>(dout), n, o);
}

int32_t products_open(dynmo_cuda *k) {
	k->products = new products();
	int32_t failed = status(cublasLtCreate(&k->products->handle));
	if (!failed) failed = static_cast<int32_t>(cudaMalloc(&k->products->workspace, workspace_bytes));
	if (failed) {
		products_close(k->products);
		k->products = nullptr;
	}
	return failed;
}

void products_close(struct products *p) {
	if (!p) return;
	for (const auto &kept : p->plans) discard(kept.second);
	cudaFree(p->workspace);
	if (p->handle) cublasLtDestroy(p->handle);
	delete p;
}

void products_name(char *text, int size) {
#ifdef DYNMO_EMULATE
	snprintf(text, size, "emulated cublasLt");
#else
	int major = 0, minor = 0, patch = 0;
	cublasLtGetProperty(MAJOR_VERSION, &major);
	cublasLtGetProperty(MINOR_VERSION, &minor);
	cublasLtGetProperty(PATCH_LEVEL, &patch);
	snprintf(text, size, "cublasLt %d.%d.%d", major, minor, patch);
#endif
}
