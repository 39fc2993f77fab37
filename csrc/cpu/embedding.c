/* Token and position embeddings: rows of two tables. */
#include "kernels.h"

struct embedding {
	const dynmo_cpu *k;
	float *out, *dwte, *dwpe;         /* (n, c); gradients of the tables. dwpe may be NULL */
	const float *wte, *wpe, *dout;    /* (vocabulary, c), (places, c), (n, c) */
	const int32_t *tokens, *positions; /* (n) */
	int64_t n, c;
};

/* Sets the rows of out for a range of tokens. */
static void embedding_forward(const void *job, int64_t first, int64_t last)
{
	const struct embedding *e = job;
	int64_t c = e->c;
	for (int64_t i = first; i < last; i++)
		e->k->add(e->out + i * c, e->wte + e->tokens[i] * c, e->wpe + e->positions[i] * c, c);
}

int32_t dynmo_cpu_embedding_forward(const dynmo_cpu *k, float *out, const int32_t *tokens,
	const int32_t *positions, const float *wte, const float *wpe, int64_t n, int64_t c, int64_t vocabulary, int64_t places)
{
	if (!dynmo_inside(tokens, n, vocabulary) || !dynmo_inside(positions, n, places))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, n, dynmo_row_grain(c), embedding_forward, &(struct embedding){
		.k = k, .out = out, .wte = wte, .wpe = wpe, .tokens = tokens, .positions = positions, .c = c});
	return DYNMO_CPU_OK;
}

/* Adds to a range of columns of the tables' gradients. Threads share columns, not tokens, so that each
 * sum takes the tokens in order. */
static void embedding_backward(const void *job, int64_t first, int64_t last)
{
	const struct embedding *e = job;
	for (int64_t i = 0; i < e->n; i++) {
		float *token = e->dwte + e->tokens[i] * e->c + first;
		const float *dout = e->dout + i * e->c + first;
		e->k->add(token, token, dout, last - first);
		if (e->dwpe) {
			float *position = e->dwpe + e->positions[i] * e->c + first;
			e->k->add(position, position, dout, last - first);
		}
	}
}

int32_t dynmo_cpu_embedding_backward(const dynmo_cpu *k, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c, int64_t vocabulary, int64_t places)
{
	if (!dynmo_inside(tokens, n, vocabulary) || (dwpe && !dynmo_inside(positions, n, places)))
		return DYNMO_CPU_INDEX;
	dynmo_parallel(k->team, c, dynmo_column_grain(n), embedding_backward, &(struct embedding){
		.k = k, .dwte = dwte, .dwpe = dwpe, .dout = dout, .tokens = tokens, .positions = positions, .n = n, .c = c});
	return DYNMO_CPU_OK;
}
