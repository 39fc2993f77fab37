/* The calls of dense products. A bias's gradient is summed by the product for the
 * weight's, which reads dout anyway: cuBLASLt overwrites, so the sums go to the
 * workspace and are added from there. */
#include "products.cuh"

#include "columns.cuh"

namespace {

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

/* weight is dweightᵀ (c, o) += inpᵀ (c, n) · dout (n, o). */
product weight(float *dweight, const void *dout, const void *inp, int32_t n, int32_t c, int32_t o) {
	product p = {};
	p.m = c, p.n = o, p.k = n;
	p.a = inp;
	p.b = dout, p.transpose_b = 1;
	p.add = p.d = dweight, p.wide = 1;
	return p;
}

} // namespace

int32_t product_of(int32_t call, int32_t biased, int32_t n, int32_t c, int32_t o, product *p) {
	float *nowhere = reinterpret_cast<float *>(uintptr_t{4096}), *bias = biased ? nowhere : nullptr;
	switch (call) {
	case DYNMO_CUDA_FORWARD:
	case DYNMO_CUDA_FORWARD_ADD:
	case DYNMO_CUDA_FORWARD_GELU: *p = forward(nowhere, nowhere, nowhere, bias, n, c, o); break;
	case DYNMO_CUDA_BACKWARD_INPUT:
	case DYNMO_CUDA_BACKWARD_GELU: *p = backward(nowhere, nowhere, nowhere, n, c, o); break;
	case DYNMO_CUDA_BACKWARD_WEIGHT:
		*p = weight(nowhere, nowhere, nowhere, n, c, o);
		p->sums = bias;
		break;
	default: return DYNMO_CUDA_SHAPE;
	}
	if (call == DYNMO_CUDA_FORWARD_ADD) p->add = nowhere;
	if (call == DYNMO_CUDA_FORWARD_GELU) p->activation = ACTIVATION_GELU;
	if (call == DYNMO_CUDA_BACKWARD_GELU) p->activation = ACTIVATION_DGELU;
	if (p->activation != ACTIVATION_NONE) p->aux = nowhere;
	return 0;
}

int32_t dynmo_cuda_matmul_forward(dynmo_cuda *k, void *stream, void *out, const void *inp, const void *weight,
	const void *bias, const void *add, int32_t n, int32_t c, int32_t o) {
	product p = forward(out, inp, weight, bias, n, c, o);
	p.add = add;
	return multiply(k, stream, &p);
}

int32_t dynmo_cuda_matmul_gelu(dynmo_cuda *k, void *stream, void *out, void *pre, const void *inp, const void *weight,
	const void *bias, int32_t n, int32_t c, int32_t o) {
	product p = forward(out, inp, weight, bias, n, c, o);
	p.activation = ACTIVATION_GELU;
	p.aux = pre;
	return multiply(k, stream, &p);
}

int32_t dynmo_cuda_matmul_backward_input(dynmo_cuda *k, void *stream, void *dinp, const void *dout, const void *weight,
	int32_t n, int32_t c, int32_t o) {
	product p = backward(dinp, dout, weight, n, c, o);
	return multiply(k, stream, &p);
}

int32_t dynmo_cuda_matmul_backward_gelu(dynmo_cuda *k, void *stream, void *dpre, const void *dout, const void *weight,
	const void *pre, int32_t n, int32_t c, int32_t o) {
	product p = backward(dpre, dout, weight, n, c, o);
	p.activation = ACTIVATION_DGELU;
	p.aux = const_cast<void *>(pre);
	return multiply(k, stream, &p);
}

/* Where cuBLASLt has no product that sums, or is not to make it, the bias's gradient is a
 * pass over dout of its own. */
int32_t dynmo_cuda_matmul_backward_weight(dynmo_cuda *k, void *stream, float *dweight, float *dbias, const void *dout,
	const void *inp, int32_t n, int32_t c, int32_t o) {
	if (n == 0) return 0;
	product p = weight(dweight, dout, inp, n, c, o);
	if (!dbias) return multiply(k, stream, &p);
	void *sums;
	if (int32_t failed = workspace(k, sizeof(float) * o, &sums)) return failed;
	p.sums = static_cast<float *>(sums);
	int refused;
	int32_t status = library_product(k, stream, &p, &refused);
	if (status) return status;
	if (!refused) return dynmo_cuda_accumulate(k, stream, dbias, dbias, p.sums, o);
	p.sums = nullptr;
	if (int32_t failed = multiply(k, stream, &p)) return failed;
	return k->type == DYNMO_CUDA_BF16 ? column_sums(k, stream, dbias, static_cast<const bf16 *>(dout), n, o)
									  : column_sums(k, stream, dbias, static_cast<const float *>(dout), n, o);
}
