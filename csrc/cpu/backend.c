/* Backends, and questions to the linked BLAS. */
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "dense.h"

/* A BLAS offers at most one of these; the others stay NULL. */
extern void openblas_set_num_threads(int threads) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));
extern void MKL_Set_Num_Threads(int threads) __attribute__((weak));
extern void bli_thread_set_num_threads(int64_t threads) __attribute__((weak));

void dynmo_blas_threads(int32_t threads)
{
	if (openblas_set_num_threads)
		openblas_set_num_threads(threads);
	if (MKL_Set_Num_Threads)
		MKL_Set_Num_Threads(threads);
	if (bli_thread_set_num_threads)
		bli_thread_set_num_threads(threads);
}

const char *dynmo_cpu_blas_name(void)
{
	if (openblas_get_config)
		return openblas_get_config();
	if (MKL_Set_Num_Threads)
		return "Intel MKL";
	if (bli_thread_set_num_threads)
		return "BLIS";
	return "";
}

const char *dynmo_cpu_blas_core(void) { return openblas_get_corename ? openblas_get_corename() : ""; }

const char *dynmo_cpu_status_name(int32_t status)
{
	switch (status) {
	case DYNMO_CPU_OK: return "ok";
	case DYNMO_CPU_INDEX: return "an index is outside its table";
	case DYNMO_CPU_MEMORY: return "out of memory";
	case DYNMO_CPU_DNNL: return "oneDNN cannot make a product, or has no memory for it";
	}
	return "unknown status";
}

/* Returns the inner loops of a path, or NULL if this processor or build lacks it. */
static const dynmo_cpu *loops(int32_t path)
{
#if defined(__x86_64__)
	int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	if (path == DYNMO_CPU_AVX512 && avx512)
		return &dynmo_avx512_kernels;
	if (path == DYNMO_CPU_AVX2 && avx2)
		return &dynmo_avx2_kernels;
#endif
	return path == DYNMO_CPU_GENERIC ? &dynmo_generic_kernels : NULL;
}

int32_t dynmo_cpu_has(int32_t path) { return loops(path) != NULL; }

dynmo_cpu *dynmo_cpu_open(int32_t path, int32_t threads)
{
	dynmo_cpu *k = malloc(sizeof *k);
	if (k == NULL)
		return NULL;
	*k = *loops(path);
	k->vectors = 0;
	k->means = NULL;
	k->team = dynmo_team_start(threads);
	if (dynmo_team_size(k->team) < threads) {
		dynmo_cpu_close(k);
		return NULL;
	}
	dynmo_blas_threads(1); /* it stays on the threads that call it */
	return k;
}

void dynmo_cpu_use_vectors(dynmo_cpu *k) { k->vectors = 1; }

int32_t dynmo_cpu_has_bfloat16(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512bf16") != 0;
#else
	return 0;
#endif
}

int32_t dynmo_cpu_is_zen5(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	return __builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 0xf) + (a >> 20 & 0xff) == 0x1a;
#else
	return 0;
#endif
}

const char *dynmo_cpu_dnnl_open(void) { return dynmo_dnnl_open(); }
int32_t dynmo_cpu_dnnl_multiplies(int32_t wide) { return dynmo_dnnl_multiplies(wide); }
const char *dynmo_cpu_dnnl_name(void) { return dynmo_dnnl_name(); }

int32_t dynmo_cpu_multiply(dynmo_cpu *k, int32_t how, int64_t forward, int64_t backward)
{
	k->means = dynmo_means_open(how, forward, backward);
	return k->means ? DYNMO_CPU_OK : DYNMO_CPU_MEMORY;
}

void dynmo_cpu_hold(const dynmo_cpu *k, int32_t hold)
{
	if (k->means)
		dynmo_means_hold(k->means, hold);
}

void dynmo_cpu_close(dynmo_cpu *k)
{
	if (k == NULL)
		return;
	dynmo_team_stop(k->team);
	dynmo_means_close(k->means);
	free(k);
}
