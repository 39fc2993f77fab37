//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Health returns the health of each GPU of this machine, in the order of Inventory.
func (l *Library) Health() ([]Health, error) {
	var list []Health
	err := l.each(func(_ int, d nvml.Device, fault string) {
		h := Health{Uncorrected: Unknown, Remapped: Unknown, PCIeWidth: Unknown, PCIeMost: Unknown, Links: Unknown, Fault: fault}
		if fault == "" {
			h.examine(d)
		}
		list = append(list, h)
	})
	return list, err
}

func (h *Health) examine(d nvml.Device) {
	var q query
	if errors, status := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); q.ok("ECC errors", status) {
		h.Uncorrected = int(errors)
	}
	if corrected, uncorrected, pending, failed, status := d.GetRemappedRows(); q.ok("remapped rows", status) {
		h.Remapped, h.RemapPending, h.RemapFailed = corrected+uncorrected, pending, failed
	}
	now, width := d.GetCurrPcieLinkWidth()
	most, known := d.GetMaxPcieLinkWidth()
	if q.ok("PCIe link", width) && q.ok("PCIe link", known) {
		h.PCIeWidth, h.PCIeMost = now, most
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, status := d.GetNvLinkState(link)
		if !q.ok("NVLink", status) {
			continue
		}
		h.Links = max(0, h.Links)
		if state == nvml.FEATURE_ENABLED {
			h.Links++
		}
	}
	h.Fault = q.fault
}
