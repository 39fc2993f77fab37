/* Dense products by cuBLASLt, 2·m·n·k operations a call. bf16 products run on tensor
 * cores with sums in float; float products use plain float (no TF32). Biases, the
 * residual and GELU are part of the product's last pass over its result.
 *
 * cuBLASLt is asked once for each kind of product. The algorithm is its first choice,
 * or one of its first few if tune.cu has chosen that for the kind. A kind has the
 * shapes, the operands that are present, and which of these begin at a multiple of
 * 16 bytes. So every rank takes the same algorithm. Sums that are cut along k are
 * added in float, in a step of their own. Among cuBLASLt's schemes only this one
 * neither rounds in between nor writes D twice. gemm_plain.cu makes the products
 * that cuBLASLt cannot make. */
#include "plans.cuh"

#include <cstdio>

namespace {

bool aligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

int32_t alignment_bits(const product &p) {
	const void *operands[OPERANDS] = {p.a, p.b, p.add, p.d, p.bias, p.aux, p.sums};
	int32_t bits = 0;
	for (int i = 0; i < OPERANDS; i++) bits |= aligned(operands[i]) << i;
	return bits;
}

uint32_t element_bytes(const dynmo_cuda *k) { return k->type == DYNMO_CUDA_BF16 ? sizeof(bf16) : sizeof(float); }

cudaDataType_t element(const dynmo_cuda *k) { return k->type == DYNMO_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

template <typename T> cublasStatus_t set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, T value) {
	return blaslt().MatmulDescSetAttribute(d, name, &value, sizeof value);
}

template <typename T>
cublasStatus_t set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, T value) {
	return blaslt().MatmulPreferenceSetAttribute(p, name, &value, sizeof value);
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

cublasStatus_t make_descriptors(const dynmo_cuda *k, const product &p, plan *t) {
	cudaDataType_t e = element(k);
	TRY(blaslt().MatmulDescCreate(&t->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	int32_t turn_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_TRANSA, turn_a));
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_TRANSB, turn_b));
	TRY(set(t->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p)));
	if (p.activation != ACTIVATION_NONE)
		TRY(set(t->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(p.m)));
	int32_t rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
	TRY(blaslt().MatrixLayoutCreate(&t->a, e, rows_a, p.transpose_a ? p.m : p.k, rows_a));
	TRY(blaslt().MatrixLayoutCreate(&t->b, e, rows_b, p.transpose_b ? p.k : p.n, rows_b));
	return blaslt().MatrixLayoutCreate(&t->d, p.wide ? CUDA_R_32F : e, p.m, p.n, p.m);
}

/* prefer says what an algorithm may use and rely on. */
cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const product &p, uint32_t bytes_of_element) {
	int32_t bits = alignment_bits(p);
	auto alignment = [&](int at, uint32_t bytes) { return bits >> at & 1 ? 16 : bytes; };
	uint32_t result_bytes = p.wide ? sizeof(float) : bytes_of_element;
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
		static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(AT_A, bytes_of_element)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(AT_B, bytes_of_element)));
	TRY(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.add ? AT_ADD : AT_D, result_bytes)));
	return set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(AT_D, result_bytes));
}

} // namespace

kind kind_of(const product &p) {
	int32_t flags = (p.transpose_a ? FLAG_TRANSPOSE_A : 0) | (p.transpose_b ? FLAG_TRANSPOSE_B : 0) |
		(p.wide ? FLAG_WIDE : 0) | (p.bias ? FLAG_BIAS : 0) | (p.add ? FLAG_ADD : 0) | (p.sums ? FLAG_SUMS : 0) |
		p.activation * FLAG_ACTIVATION;
	return {p.m, p.n, p.k, flags, alignment_bits(p)};
}

bool offered(const product &p) {
	return p.m > 1 && p.n > 1 && p.k > 1 && (p.activation == ACTIVATION_NONE || p.m % 8 == 0);
}

cublasStatus_t describe(const dynmo_cuda *k, const product &p, plan *t) {
	TRY(make_descriptors(k, p, t));
	auto like = [&](const void *x) {
		return reinterpret_cast<void *>(uintptr_t{4096} + (aligned(x) ? 16 : element_bytes(k)));
	};
	return point(*t, p, like(vector_of(p)), like(p.aux));
}

cublasStatus_t propose(const dynmo_cuda *k, const product &p, const plan &t, int most,
	cublasLtMatmulHeuristicResult_t *list, int *found) {
	*found = 0;
	cublasLtMatmulPreference_t preference;
	TRY(blaslt().MatmulPreferenceCreate(&preference));
	cublasStatus_t outcome = prefer(preference, p, element_bytes(k));
	if (outcome == CUBLAS_STATUS_SUCCESS)
		outcome = blaslt().MatmulAlgoGetHeuristic(k->products->handle, t.operation, t.a, t.b, t.d, t.d, preference, most,
			list, found);
	blaslt().MatmulPreferenceDestroy(preference);
	/* Versions differ in which of the two they say of an epilogue that they do not have. */
	if (outcome == CUBLAS_STATUS_NOT_SUPPORTED || outcome == CUBLAS_STATUS_INVALID_VALUE) {
		*found = 0;
		return CUBLAS_STATUS_SUCCESS;
	}
	TRY(outcome);
	int good = 0;
	for (int i = 0; i < *found; i++)
		if (list[i].state == CUBLAS_STATUS_SUCCESS) list[good++] = list[i];
	*found = good;
	return CUBLAS_STATUS_SUCCESS;
}

void discard(const plan &t) {
	if (t.operation) blaslt().MatmulDescDestroy(t.operation);
	for (cublasLtMatrixLayout_t layout : {t.a, t.b, t.d})
		if (layout) blaslt().MatrixLayoutDestroy(layout);
}

namespace {

/* make sets *t to the plan of a new kind. */
cublasStatus_t make(const dynmo_cuda *k, const product &p, plan *t) {
	if (!offered(p)) {
		t->plain = true;
		return CUBLAS_STATUS_SUCCESS;
	}
	TRY(describe(k, p, t));
	cublasLtMatmulHeuristicResult_t best = {};
	int found;
	TRY(propose(k, p, *t, 1, &best, &found));
	t->plain = found == 0;
	t->algorithm = best.algo;
	return CUBLAS_STATUS_SUCCESS;
}

/* plan_of sets *t to the plan of a product's kind, which it makes if it is new. */
cublasStatus_t plan_of(const dynmo_cuda *k, const product &p, const plan **t) {
	products &s = *k->products;
	kind key = kind_of(p);
	auto known = s.plans.find(key);
	if (known == s.plans.end()) {
		plan made = {};
		cublasStatus_t outcome = make(k, p, &made);
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
	return blaslt().Matmul(s.handle, t.operation, &alpha, p.a, t.a, p.b, t.b, &beta, p.add ? p.add : p.d, t.d, p.d, t.d,
		&t.algorithm, s.workspace, workspace_bytes, static_cast<cudaStream_t>(stream));
}

cublasStatus_t by_library(const dynmo_cuda *k, void *stream, const product &p) {
	const plan *t;
	TRY(plan_of(k, p, &t));
	return t->plain ? CUBLAS_STATUS_NOT_SUPPORTED : run(*k->products, stream, *t, p);
}

int32_t status(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCTS_STATUS + s; }

} // namespace

int32_t library_product(const dynmo_cuda *k, void *stream, const product *p, int *refused) {
	cublasStatus_t outcome = by_library(k, stream, *p);
	*refused = outcome == CUBLAS_STATUS_NOT_SUPPORTED;
	return *refused ? 0 : status(outcome);
}

int32_t multiply(const dynmo_cuda *k, void *stream, const product *p) {
	if (p->m == 0 || p->n == 0) return 0;
	int refused;
	int32_t failed = library_product(k, stream, p, &refused);
	if (!refused) return failed;
	k->products->fallbacks++;
	return plain_product(k, stream, p);
}

const char *dynmo_cuda_missing(void) { return blaslt().missing.empty() ? nullptr : blaslt().missing.c_str(); }

int32_t products_open(dynmo_cuda *k) {
	if (dynmo_cuda_missing()) return DYNMO_CUDA_ABSENT;
	k->products = new products();
	int32_t failed = status(blaslt().Create(&k->products->handle));
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
	if (p->handle) blaslt().Destroy(p->handle);
	delete p;
}

void products_name(char *text, int size) {
	int major = 0, minor = 0, patch = 0;
	blaslt().GetProperty(MAJOR_VERSION, &major);
	blaslt().GetProperty(MINOR_VERSION, &minor);
	blaslt().GetProperty(PATCH_LEVEL, &patch);
	snprintf(text, size, "cublasLt %d.%d.%d", major, minor, patch);
}
