package kernel

// Hold tells b, with hold, that the weights of products do not change until it is told otherwise. A
// backend that rounds or packs weights does so once in this time, not in each product. The caller may
// still change weights that no product of this time has used.
func Hold(b Backend, hold bool) {
	if h, ok := b.(interface{ Hold(bool) }); ok {
		h.Hold(hold)
	}
}
