package partition

// Map assigns virtual stages to stages. The chain is cut into Stages·Chunks virtual stages, in the
// order of a microbatch's forward. So a partition has that many parts. The chunks of a stage are
// its virtual stages, in the same order.
//
//	Chunks = 1   virtual stage v on stage v
//	a loop       virtual stage v on stage v % Stages (interleaved 1F1B)
//	a V          down the stages and back up, in turn: with two chunks v on
//	             stage v, then on stage 2·Stages-1-v (ZB-V)
type Map struct {
	Stages, Chunks int
	Vee            bool
}

// Line is the map of one chunk on each stage.
func Line(stages int) Map { return Map{Stages: stages, Chunks: 1} }

// Virtual returns the number of virtual stages.
func (m Map) Virtual() int { return m.Stages * m.Chunks }

// Stage returns the stage that holds a virtual stage.
func (m Map) Stage(virtual int) int {
	if m.Vee && m.Chunk(virtual)%2 == 1 {
		return m.Stages - 1 - virtual%m.Stages
	}
	return virtual % m.Stages
}

// Chunk returns the number of a virtual stage among the chunks of its stage.
func (m Map) Chunk(virtual int) int { return virtual / m.Stages }

// Place returns the virtual stage of a stage's chunk.
func (m Map) Place(stage, chunk int) int {
	if m.Vee && chunk%2 == 1 {
		stage = m.Stages - 1 - stage
	}
	return chunk*m.Stages + stage
}

// Owners returns the stage of every layer of a chain. cuts divide the chain into m's virtual
// stages.
func (m Map) Owners(cuts Partition) Owners {
	if cuts.Stages() != m.Virtual() {
		panic("partition: cuts and map differ in their virtual stages")
	}
	o := make(Owners, 0, cuts.Layers())
	for v := range m.Virtual() {
		for range cuts.Count(v) {
			o = append(o, m.Stage(v))
		}
	}
	return o
}

// Owners has the stage of each layer.
type Owners []int

// Moved returns the layers whose stage differs between o and to, ascending.
func (o Owners) Moved(to Owners) []int {
	var moved []int
	for l := range o {
		if o[l] != to[l] {
			moved = append(moved, l)
		}
	}
	return moved
}

// Layers returns the layers of a stage, ascending.
func (o Owners) Layers(stage int) []int {
	var list []int
	for l, s := range o {
		if s == stage {
			list = append(list, l)
		}
	}
	return list
}
