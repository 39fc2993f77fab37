package data

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// content is the ids of files, one behind the other.
type content []part

// part is the ids of a file, and their hash, which is computed once.
type part struct {
	ids
	hash func() string
}

func newPart(x ids) part { return part{x, sync.OnceValue(x.hash)} }

func (c content) count() int {
	n := 0
	for _, x := range c {
		n += x.count()
	}
	return n
}

// copyTo fills dst with the ids from index i on.
func (c content) copyTo(dst []int32, i int) {
	for _, x := range c {
		n := x.count()
		if i >= n {
			i -= n
			continue
		}
		k := min(len(dst), n-i)
		x.copyTo(dst[:k], i)
		if dst, i = dst[k:], 0; len(dst) == 0 {
			return
		}
	}
}

// hash returns the SHA-256 of a file's ids in the form of the file. Of several files it is that of their
// hashes.
func (c content) hash() string {
	if len(c) == 1 {
		return c[0].hash()
	}
	all := sha256.New()
	for _, x := range c {
		all.Write([]byte(x.hash()))
	}
	return hex.EncodeToString(all.Sum(nil))
}
