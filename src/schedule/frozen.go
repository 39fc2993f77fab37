package schedule

import "slices"

// SkipFrozen returns what there is to do in a step in which nothing before virtual stage first
// trains: those before it do forwards alone, and no gradient goes to them. The rest of
// every list keeps its order. It has no peaks of its own: what Peaks says of the whole
// schedule is enough.
func (s Schedule) SkipFrozen(first int) Schedule {
	if first <= 0 {
		return s
	}
	lists := make([][]Instr, len(s.Lists))
	for stage, list := range s.Lists {
		lists[stage] = slices.DeleteFunc(slices.Clone(list), func(in Instr) bool {
			return in.Op != F && s.Map.Place(stage, in.Chunk) < first
		})
	}
	s.Lists, s.First = lists, first
	return s
}
