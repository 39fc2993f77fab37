// Package cpu is the kernel backend for host memory in C over a BLAS: float32
// operands come in, results go out before the call returns. Dense products are
// cblas_sgemm (for one row cblas_sgemv, with NewForTexts); everything else is csrc/cpu, vectorised for AVX-512, AVX2 or
// whatever the compiler targets, chosen when the backend is made.
//
// The package builds with the tag blas and links -lopenblas. With the tag
// blaslibs as well it links what CGO_LDFLAGS names instead, any library that
// has these two. Without the tag, New returns an error.
//
// A backend may have threads of its own, that share the work of a call by rows,
// columns, elements, heads or slices of a product; the BLAS always works on the
// thread that calls it.
//
// Bits depend on the operands, the path and the BLAS. They do not depend on
// where operands lie, on other backends of the process, or on threads: a sum
// has one order, whichever thread takes it. For slices of a product that is a property
// of the BLAS, which a test looks at.
package cpu
