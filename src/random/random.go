// Package random makes random numbers that depend on a key, not on earlier draws. In comes a key
// such as (seed, step, layer, microbatch). Out comes its stream, which is the same on every rank
// and at any time.
package random

import (
	"math"
	"math/rand/v2"
)

// Keyed returns the generator of a key, a list of numbers of any length. Equal
// keys give equal streams; keys that differ anywhere give unrelated ones. The
// key is hashed by splitmix64 (Steele, Lea & Flood 2014) into a PCG seed.
func Keyed(key ...uint64) *rand.Rand {
	var p rand.PCG
	Seed(&p, key...)
	return rand.New(&p)
}

// Seed sets p to the stream of a key, as Keyed does, without allocating.
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

// Delay returns a random factor in [1, most] for a duration, by key: 1 + min(|x|/3, 1)·(most-1)
// with x ~ N(0, 1). So one in 370 factors is `most` (three standard deviations), and the mean is 1
// + 0.266·(most-1). If most is at most 1 the factor is 1. Delay does not allocate. (Paper, figure
// 7: a network with delays of up to 4 times, normally distributed, after Sukhov & Kuznetsova 2009.)
func Delay(most float64, key ...uint64) float64 {
	if !(most > 1) {
		return 1
	}
	var p rand.PCG
	Seed(&p, key...)
	uniform := float64(p.Uint64()>>11) / (1 << 53) // below 1, so that the inverse is finite
	return 1 + min(math.Sqrt2*math.Erfinv(uniform)/3, 1)*(most-1)
}
