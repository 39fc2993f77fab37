// Package random gives random numbers that depend on names, not on history:
// the stream of (seed, step, layer, microbatch) is the same whichever rank
// draws it, and whenever.
package random

import "math/rand/v2"

// Keyed returns the generator of a key, a list of numbers of any length. Equal
// keys give equal streams; keys that differ anywhere give unrelated ones. The
// key is hashed by splitmix64 (Steele, Lea & Flood 2014) into a PCG seed.
func Keyed(key ...uint64) *rand.Rand {
	var p rand.PCG
	Seed(&p, key...)
	return rand.New(&p)
}

// Seed makes p draw the stream of a key, as Keyed does, without allocating.
func Seed(p *rand.PCG, key ...uint64) {
	a, b := uint64(len(key)), ^uint64(len(key))
	for _, k := range key {
		a = splitmix(a ^ k)
		b = splitmix(b + k)
	}
	p.Seed(a, b)
}

// splitmix is the finaliser of splitmix64: a bijection of 64 bits.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
