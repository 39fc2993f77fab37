// Package place says where the experts of a layer are, and deals their rows. What comes in is
// how many rows every expert has; what goes out is which replicas hold an expert, and which
// of them works on which blocks of its rows. Nothing here changes a result: placement is for
// time alone.
package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Map is where the experts of a layer are: Map[e] lists the replicas that hold expert e, its
// owner first, then the replicas with a copy in ascending order.
type Map [][]int

// Even returns the map without copies in which replica e·replicas/experts owns expert e. Where
// replicas do not divide experts, some replicas own one expert more than others.
func Even(experts, replicas int) Map {
	m, all := make(Map, experts), make([]int, experts)
	for e := range m {
		all[e] = e * replicas / experts
		m[e] = all[e : e+1 : e+1]
	}
	return m
}

// Places returns the number of experts that a replica has room for: its even share, rounded up, and
// the spare places.
func Places(experts, replicas, spare int) int { return (experts+replicas-1)/replicas + spare }

// Check returns an error unless the map places that many experts on that many replicas, with at
// most `places` experts on each replica.
func (m Map) Check(experts, replicas, places int) error {
	if len(m) != experts {
		return fmt.Errorf("%d experts, want %d", len(m), experts)
	}
	held := make([]int, replicas)
	for e, list := range m {
		if len(list) == 0 {
			return fmt.Errorf("expert %d: no replica holds it", e)
		}
		for i, replica := range list {
			switch {
			case replica < 0 || replica >= replicas:
				return fmt.Errorf("expert %d: replica %d, want 0 to %d", e, replica, replicas-1)
			case i > 0 && replica == list[0]:
				return fmt.Errorf("expert %d: its owner %d has a copy too", e, replica)
			case i > 1 && replica <= list[i-1]:
				return fmt.Errorf("expert %d: copies on %v, want them ascending", e, list[1:])
			}
			if held[replica]++; held[replica] > places {
				return fmt.Errorf("replica %d: more than %d experts", replica, places)
			}
		}
	}
	return nil
}

// Equal reports whether two maps are the same.
func (m Map) Equal(other Map) bool { return slices.EqualFunc(m, other, slices.Equal[[]int]) }

// Owned returns the map without its copies.
func (m Map) Owned() Map {
	out, all := make(Map, len(m)), make([]int, len(m))
	for e, on := range m {
		all[e] = on[0]
		out[e] = all[e : e+1 : e+1]
	}
	return out
}

// Copies returns how many copies there are besides the owners' experts.
func (m Map) Copies() (n int) {
	for _, list := range m {
		n += len(list) - 1
	}
	return n
}

// String returns the map as text: by expert its replicas with + between them, and a blank
// between experts. A run of n experts on the same replicas is written once, with *n behind it:
//
//	0*2 1+0+3 1
func (m Map) String() string {
	var b strings.Builder
	for e, n := 0, 0; e < len(m); e += n {
		for n = 1; e+n < len(m) && slices.Equal(m[e], m[e+n]); n++ {
		}
		if e > 0 {
			b.WriteByte(' ')
		}
		for i, replica := range m[e] {
			if i > 0 {
				b.WriteByte('+')
			}
			b.WriteString(strconv.Itoa(replica))
		}
		if n > 1 {
			b.WriteByte('*')
			b.WriteString(strconv.Itoa(n))
		}
	}
	return b.String()
}

// mostExperts bounds the memory of a map that is read.
const mostExperts = 1 << 16

// Parse reads what String wrote. The map may be one that Check refuses.
func Parse(text string) (Map, error) {
	var m Map
	for _, run := range strings.Fields(text) {
		list, times, many := strings.Cut(run, "*")
		n := 1
		if many {
			var err error
			if n, err = strconv.Atoi(times); err != nil || n < 2 {
				return nil, fmt.Errorf("experts %q: want replicas*n with n of at least 2", run)
			}
		}
		if n > mostExperts-len(m) {
			return nil, fmt.Errorf("experts %q: want at most %d in all", run, mostExperts)
		}
		var on []int
		for _, x := range strings.Split(list, "+") {
			replica, err := strconv.Atoi(x)
			if err != nil || replica < 0 {
				return nil, fmt.Errorf("experts %q: %q, want the number of a replica", run, x)
			}
			on = append(on, replica)
		}
		for range n {
			m = append(m, on)
		}
	}
	return m, nil
}
