//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Health returns the health of each GPU of this machine, by index.
func (l *Library) Health() ([]Health, error) {
	count, status := l.lib.DeviceGetCount()
	if err := check("count the GPUs", status); err != nil {
		return nil, err
	}
	list := make([]Health, count)
	for i := range list {
		d, status := l.lib.DeviceGetHandleByIndex(i)
		if err := check("a GPU's handle", status); err != nil {
			return nil, err
		}
		list[i] = examine(d)
	}
	return list, nil
}

func examine(d nvml.Device) Health {
	h := Health{Uncorrected: Unknown, Remapped: Unknown, PCIeWidth: Unknown, PCIeMost: Unknown, Links: Unknown}
	if errors, status := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); status == nvml.SUCCESS {
		h.Uncorrected = int(errors)
	}
	if corrected, uncorrected, pending, failed, status := d.GetRemappedRows(); status == nvml.SUCCESS {
		h.Remapped, h.RemapPending, h.RemapFailed = corrected+uncorrected, pending, failed
	}
	now, status := d.GetCurrPcieLinkWidth()
	most, known := d.GetMaxPcieLinkWidth()
	if status == nvml.SUCCESS && known == nvml.SUCCESS {
		h.PCIeWidth, h.PCIeMost = now, most
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, status := d.GetNvLinkState(link)
		if status != nvml.SUCCESS {
			continue
		}
		h.Links = max(0, h.Links)
		if state == nvml.FEATURE_ENABLED {
			h.Links++
		}
	}
	return h
}
