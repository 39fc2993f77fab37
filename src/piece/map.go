// Package piece says which replicas of a stage hold which pieces of its layers. A piece is a group of
// parameters that replicas divide among them, such as an expert. The owner keeps a piece's moments;
// replicas with a copy hold its weights too. No result depends on the assignment, only time does.
package piece

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Map is the pieces of one block: Map[k] lists the replicas that hold piece k, its owner first, then
// the replicas with a copy in ascending order.
type Map [][]int

// Even returns the map without copies in which replica k·replicas/count owns piece k of count. Where
// replicas does not divide count, some replicas own one piece more than others.
func Even(count, replicas int) Map {
	m, all := make(Map, count), make([]int, count)
	for k := range m {
		all[k] = k * replicas / count
		m[k] = all[k : k+1 : k+1]
	}
	return m
}

// Check returns an error unless the map has count pieces on that many replicas, with at most `places`
// pieces on each replica.
func (m Map) Check(count, replicas, places int) error {
	if len(m) != count {
		return fmt.Errorf("%d pieces, want %d", len(m), count)
	}
	held := make([]int, replicas)
	for k, list := range m {
		if len(list) == 0 {
			return fmt.Errorf("piece %d: no replica holds it", k)
		}
		for i, replica := range list {
			switch {
			case replica < 0 || replica >= replicas:
				return fmt.Errorf("piece %d: replica %d, want 0 to %d", k, replica, replicas-1)
			case i > 0 && replica == list[0]:
				return fmt.Errorf("piece %d: its owner %d has a copy too", k, replica)
			case i > 1 && replica <= list[i-1]:
				return fmt.Errorf("piece %d: copies on %v, want them ascending", k, list[1:])
			}
			if held[replica]++; held[replica] > places {
				return fmt.Errorf("replica %d: more than %d pieces", replica, places)
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

// Copies returns how many copies there are besides the owners' pieces.
func (m Map) Copies() (n int) {
	for _, list := range m {
		n += len(list) - 1
	}
	return n
}

// String returns the map as text: by piece its replicas with + between them, and a blank between
// pieces. A run of n pieces on the same replicas is written once, with *n behind it:
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

// most bounds the pieces of an assignment that is read, and so its memory. It is 64 blocks of 65536
// pieces, 100 MB.
const most = 1 << 22

// parseMap reads what String wrote, with at most `left` pieces. The map may be one that Check refuses.
func parseMap(text string, left int) (Map, error) {
	var m Map
	for _, run := range strings.Fields(text) {
		list, times, many := strings.Cut(run, "*")
		n := 1
		if many {
			var err error
			if n, err = strconv.Atoi(times); err != nil || n < 2 {
				return nil, fmt.Errorf("%.100q: want replicas*n with n of at least 2", run)
			}
		}
		if n > left-len(m) {
			return nil, fmt.Errorf("%.100q: want at most %d pieces in all", run, most)
		}
		var on []int
		for _, x := range strings.Split(list, "+") {
			replica, err := strconv.Atoi(x)
			if err != nil || replica < 0 {
				return nil, fmt.Errorf("%.100q: %.100q, want the number of a replica", run, x)
			}
			on = append(on, replica)
		}
		for range n {
			m = append(m, on)
		}
	}
	return m, nil
}
