package tokenizer

import (
	"container/heap"
	"slices"
)

// merge is the token that two neighbours become, and its rank. Of all merges in a text the one with
// the lowest rank is made first; of equal ranks the first in the text.
type merge struct {
	rank int
	id   int32
}

// pending is a possible merge of the token at a place with the next token.
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

// joined marks a token that has become part of the token before it.
const joined = -1

// merged makes all merges of neighbours in ids, in place.
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
			continue // one of the two has already been merged otherwise
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
