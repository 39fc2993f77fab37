/* cuBLASLt's functions. The library is opened at run time: the calls below have been the
 * same from version 11 to 13, so kernels that one toolkit compiled run with another's. */
#ifndef DYNMO_BLASLT_CUH
#define DYNMO_BLASLT_CUH

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#define BLASLT_CALLS(X)                                                                                                \
	X(Create) X(Destroy) X(GetProperty) X(Matmul) X(MatmulAlgoCheck) X(MatmulAlgoGetHeuristic) X(MatmulDescCreate)     \
	X(MatmulDescDestroy) X(MatmulDescSetAttribute) X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy)                \
	X(MatmulPreferenceSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy)

struct blaslt_calls {
	std::string missing; /* why a call is null, else empty */
#define BLASLT_MEMBER(name) decltype(&::cublasLt##name) name;
	BLASLT_CALLS(BLASLT_MEMBER)
#undef BLASLT_MEMBER

#ifdef DYNMO_EMULATE
#define BLASLT_FIND(name) name = cublasLt##name;
	blaslt_calls() { BLASLT_CALLS(BLASLT_FIND) }
#else
#define BLASLT_TEXT(x) #x
#define BLASLT_FILE(version) "libcublasLt.so." BLASLT_TEXT(version)
#define BLASLT_FIND(name)                                                                                              \
	name = opened ? reinterpret_cast<decltype(name)>(dlsym(opened, "cublasLt" #name)) : nullptr;                       \
	if (!name && missing.empty()) missing = "it has no cublasLt" #name;
	blaslt_calls()
	{
		void *opened = nullptr;
		for (const char *file : {BLASLT_FILE(CUBLAS_VER_MAJOR), BLASLT_FILE(13), BLASLT_FILE(12), BLASLT_FILE(11)})
			if (!opened && !(opened = dlopen(file, RTLD_NOW | RTLD_LOCAL)) && missing.empty()) missing = dlerror();
		if (opened) missing.clear();
		BLASLT_CALLS(BLASLT_FIND)
		if (!missing.empty())
			missing = "cuBLASLt (libcublasLt.so.13, .12 or .11) cannot be used: " + missing +
				"; a CUDA toolkit or Python's package nvidia-cublas brings it, LD_LIBRARY_PATH says where it is";
	}
#endif
#undef BLASLT_FIND
};

/* blaslt returns the functions; a process has them once. */
inline const blaslt_calls &blaslt()
{
	static const blaslt_calls once;
	return once;
}

#endif
