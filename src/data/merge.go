package data

import (
	"container/heap"
	"slices"
)

// merge is what two neighbours become, and when: of those in a text the merge of the lowest
// rank is made first, of equal ones the first in the text.
type merge struct {
	rank int
	id   int32
}

// pending is a merge that may be made of the token at a place and the one behind it.
type pending struct {
	merge
	at int
}

// queue is a heap of pending merges.
type queue []pending

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(pending)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// joined stands for a token that is part of the one before it.
const joined = -1

// merged makes all merges of neighbours, in its place.
func (v *Vocabulary) merged(ids []int32) []int32 {
	n := len(ids)
	next, before := make([]int, n), make([]int, n)
	var q queue
	add := func(at int) {
		if at >= 0 && next[at] < n {
			if m, ok := v.merges[[2]int32{ids[at], ids[next[at]]}]; ok {
				heap.Push(&q, pending{m, at})
			}
		}
	}
	for i := range ids {
		next[i], before[i] = i+1, i-1
	}
	for i := range ids {
		add(i)
	}
	for len(q) > 0 {
		p := heap.Pop(&q).(pending)
		right := next[p.at]
		if ids[p.at] == joined || right == n || v.merges[[2]int32{ids[p.at], ids[right]}] != p.merge {
			continue // another merge has been made of one of the two
		}
		ids[p.at], ids[right] = p.id, joined
		if next[p.at] = next[right]; next[right] < n {
			before[next[right]] = p.at
		}
		add(before[p.at])
		add(p.at)
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == joined })
}
