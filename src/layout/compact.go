package layout

import (
	"math"
	"slices"
)

// mostChoices is the largest number of sets of nodes that Compact tries. The time of each grows
// with the ranks of both layouts (see BenchmarkCompact).
const mostChoices = 64

// Compact returns the Ranks of a next layout that has at most as many ranks as the present one. The
// chosen ranks keep the order of the present mesh, and the first rank stays the first. They are on
// the fewest nodes, including the node of the first rank. Of such choices Compact takes the one
// that moves the fewest bytes (see Moves; a layer with a different copy in each replica counts as
// if the copies were equal). Of equal choices it takes the one with earlier ranks. It returns nil
// if the chosen ranks are the first ranks of the launched world.
//
// nodes is by rank of the launched world, bytes by layer. Compact is exact if the ranks of each
// node are neighbours in the mesh. Otherwise it is exact as long as there are at most mostChoices
// sets of the fewest nodes. Beyond that it takes the first mostChoices sets that have enough ranks.
// It panics if the present layout has fewer ranks than the next.
func Compact(present, next Layout, nodes []int, bytes []int64) []int {
	size := next.Mesh.Size()
	if size > present.Mesh.Size() {
		panic("layout: more ranks are wanted than there are")
	}
	c := newCompaction(present, next, nodes, bytes)
	ranks := c.best()
	for rank, place := range ranks {
		ranks[rank] = present.World(place)
	}
	for rank, world := range ranks {
		if rank != world {
			return ranks
		}
	}
	return nil
}

// FewestNodes returns the least number of nodes that together have `ranks` ranks of a layout. The
// first rank's node is one of them. nodes is by rank of the launched world.
func FewestNodes(l Layout, ranks int, nodes []int) int {
	_, has := l.onNodes(nodes)
	return fewest(has, ranks)
}

// onNodes returns the node of every rank of the mesh, numbered from 0 by first appearance, and the
// number of ranks on every node.
func (l Layout) onNodes(nodes []int) (node, ranks []int) {
	index := make(map[int]int)
	for _, rank := range l.WorldRanks() {
		at, ok := index[nodes[rank]]
		if !ok {
			at = len(index)
			index[nodes[rank]], ranks = at, append(ranks, 0)
		}
		node = append(node, at)
		ranks[at]++
	}
	return node, ranks
}

// fewest returns the least number of nodes that together have `size` ranks. The first node is one
// of them. ranks is by node.
func fewest(ranks []int, size int) int {
	others := slices.Sorted(slices.Values(ranks[1:]))
	n := 1
	for left := size - ranks[0]; left > 0; n++ {
		left -= others[len(others)-n]
	}
	return n
}

// compaction is the choice of ranks of the present mesh for the ranks of the next mesh.
type compaction struct {
	size   int       // ranks of the next mesh
	node   []int     // by rank of the present mesh: its node, numbered from 0 by first appearance
	ranks  []int     // by node: number of ranks of the present mesh
	before []int     // by rank of the present mesh: its stage
	after  []int     // by rank of the next mesh: its stage
	misses [][]int64 // by stage of the next mesh, then of the present: bytes of the next stage's layers that the present stage lacks
}

func newCompaction(present, next Layout, nodes []int, bytes []int64) *compaction {
	c := &compaction{size: next.Mesh.Size(), misses: make([][]int64, next.Stages())}
	c.node, c.ranks = present.onNodes(nodes)
	for rank := range c.node {
		c.before = append(c.before, present.Mesh.Stage(rank))
	}
	for rank := range c.size {
		c.after = append(c.after, next.Mesh.Stage(rank))
	}
	for stage := range c.misses {
		c.misses[stage] = make([]int64, present.Stages())
	}
	from := present.Owners()
	for layer, to := range next.Owners() {
		for stage := range c.misses[to] {
			if stage != from[layer] {
				c.misses[to][stage] += bytes[layer]
			}
		}
	}
	return c
}

// best returns the chosen ranks of the present mesh.
func (c *compaction) best() []int {
	if slices.IsSorted(c.node) { // the ranks of every node are neighbours
		all := slices.Repeat([]bool{true}, len(c.ranks))
		ranks, _ := c.match(all, 1)
		return ranks
	}
	var best []int
	least := int64(math.MaxInt64)
	c.choices(func(chosen []bool) {
		if ranks, moved := c.match(chosen, 0); moved < least {
			best, least = ranks, moved
		}
	})
	return best
}

// choices visits sets of the fewest nodes that have enough ranks. The first node is in every set.
// It visits at most mostChoices sets.
func (c *compaction) choices(visit func(chosen []bool)) {
	visited, chosen := 0, make([]bool, len(c.ranks))
	var choose func(node, more, ranks int)
	choose = func(node, more, ranks int) {
		if visited == mostChoices {
			return
		}
		if more == 0 {
			if ranks >= c.size {
				visited++
				visit(chosen)
			}
			return
		}
		if len(c.ranks)-node < more || ranks+c.most(node, more) < c.size {
			return
		}
		chosen[node] = true
		choose(node+1, more-1, ranks+c.ranks[node])
		chosen[node] = false
		choose(node+1, more, ranks)
	}
	chosen[0] = true
	choose(1, fewest(c.ranks, c.size)-1, c.ranks[0])
}

// most returns the largest number of ranks on any `count` of the nodes from `node` on.
func (c *compaction) most(node, count int) (n int) {
	rest := slices.Sorted(slices.Values(c.ranks[node:]))
	for _, ranks := range rest[len(rest)-count:] {
		n += ranks
	}
	return n
}

// bill is the cost of a choice of ranks: nodes first, then bytes.
type bill struct {
	nodes int
	bytes int64
}

func (b bill) less(other bill) bool {
	return b.nodes < other.nodes || b.nodes == other.nodes && b.bytes < other.bytes
}

// never is larger than the cost of any choice.
var never = bill{nodes: math.MaxInt}

// match returns the ranks of the chosen nodes with the least bill, and the bytes that move. Every
// node with a chosen rank adds perNode to the bill; it adds it once if its ranks are neighbours.
// match goes through the ranks from the last to the first. left is the least bill of the later
// ranks. Its index is whether a rank of the same node was chosen before, and the number of chosen
// ranks.
func (c *compaction) match(chosen []bool, perNode int) (ranks []int, moved int64) {
	width := c.size + 1
	left, next := slices.Repeat([]bill{never}, 2*width), make([]bill, 2*width)
	left[0], left[width] = bill{}, bill{}
	stays := make([]bool, len(c.node)*2*width)
	for rank := len(c.node) - 1; rank > 0; rank-- {
		same := rank+1 < len(c.node) && c.node[rank+1] == c.node[rank]
		for open := range 2 {
			without, with := left[:width], left[:width]
			if same {
				without, with = left[open*width:][:width], left[width:]
			}
			row := stays[(2*rank+open)*width:]
			for wanted := range width {
				least := without[wanted]
				if wanted > 0 && chosen[c.node[rank]] && with[wanted-1] != never {
					b := with[wanted-1]
					b.bytes += c.missing(wanted, rank)
					b.nodes += perNode * (1 - open)
					if !least.less(b) {
						least, row[wanted] = b, true
					}
				}
				next[open*width+wanted] = least
			}
		}
		left, next = next, left
	}
	ranks, moved = []int{0}, c.missing(c.size, 0)
	open := bit(len(c.node) > 1 && c.node[1] == 0)
	moved += left[open*width+c.size-1].bytes
	for rank := 1; len(ranks) < c.size; rank++ {
		if taken := stays[(2*rank+open)*width+c.size-len(ranks)]; taken {
			ranks, open = append(ranks, rank), 1
		}
		if rank+1 < len(c.node) && c.node[rank+1] != c.node[rank] {
			open = 0
		}
	}
	return ranks, moved
}

// missing returns the bytes that a rank of the present mesh must receive to become a rank of the
// next mesh. That next rank is the first of the `wanted` last ranks.
func (c *compaction) missing(wanted, rank int) int64 {
	return c.misses[c.after[c.size-wanted]][c.before[rank]]
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
