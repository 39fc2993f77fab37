package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Hash returns the SHA-256 of the hashes of all layers in chain order: one value for the state of
// the whole model, equal in any layout. If replicas have their own parameters of a layer, it counts
// as one layer with the parameters of all replicas. Collective over the stages and the replicas.
func Hash(x *model.Exec, stages, replicas *comm.Group, l layout.Layout, s *model.Stage) (string, error) {
	var mine []byte
	for _, layer := range s.Layers {
		sum, err := layerHash(x, replicas, layer, s.Config)
		if err != nil {
			return "", fmt.Errorf("hash: %w", err)
		}
		mine = append(mine, sum...)
	}
	all, err := stages.Allgather(mine)
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	h := sha256.New()
	for _, stage := range l.Owners() {
		h.Write(all[stage][:sha256.Size])
		all[stage] = all[stage][sha256.Size:]
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// layerHash returns the hash of a layer with the parts of all replicas. Collective over the
// replicas.
func layerHash(x *model.Exec, replicas *comm.Group, l *model.Layer, shape model.Config) (sum []byte, err error) {
	shape.Shards = 0
	err = l.Unsliced(x, func() error {
		sum, err = wholeHash(x, replicas, l, shape)
		return err
	})
	return sum, err
}

// wholeHash is layerHash for a layer that is not sliced.
func wholeHash(x *model.Exec, replicas *comm.Group, l *model.Layer, shape model.Config) ([]byte, error) {
	if !l.Own() {
		sum, err := l.Hash()
		return sum[:], err
	}
	if replicas.Rank() > 0 {
		if err := tell(x.Device, replicas, l); err != nil {
			return nil, err
		}
		return replicas.Bcast(0, nil)
	}
	whole, err := gatherLayer(x, replicas, l, shape)
	if err != nil {
		return nil, err
	}
	defer whole.Free()
	sum, err := whole.Hash()
	if err != nil {
		return nil, err
	}
	return replicas.Bcast(0, sum[:])
}

// tell sends this replica's own part of a layer to the first replica.
func tell(d device.Device, replicas *comm.Group, l *model.Layer) error {
	text, err := json.Marshal(l.Sections())
	if err == nil {
		err = replicas.SendBytes(0, comm.TagHeader, text)
	}
	for _, p := range l.OwnState() {
		var host tensor.Mem
		if err == nil {
			host, err = device.Read(d, p.Mem)
		}
		if err == nil {
			err = replicas.SendBytes(0, comm.TagSection, tensor.Of[byte](host))
		}
	}
	return err
}

// gatherLayer returns a copy of a layer in host memory, with the parts of all replicas.
func gatherLayer(x *model.Exec, replicas *comm.Group, l *model.Layer, shape model.Config) (*model.Layer, error) {
	host := cpu.New(device.NewWall())
	whole, err := l.Like(shape.Whole(), host)
	if err != nil {
		return nil, err
	}
	for replica := 1; replica < replicas.Size() && err == nil; replica++ {
		err = adopt(x, whole, replicas, replica, shape.AsReplica(replica, replicas.Size()), host)
	}
	if err == nil {
		err = whole.Adopt(l, false)
	}
	if err != nil {
		whole.Free()
		return nil, err
	}
	return whole, nil
}

// adopt adds the part that another replica sends to a whole layer.
func adopt(x *model.Exec, whole *model.Layer, replicas *comm.Group, replica int, shape model.Config, host device.Device) error {
	text, err := replicas.RecvBytes(replica, comm.TagHeader)
	if err != nil {
		return err
	}
	var sections []model.Section
	if err := json.Unmarshal(text, &sections); err != nil {
		return fmt.Errorf("sections: %w", err)
	}
	theirs, err := model.Restore(shape, sections, host, x.Backend.DType())
	if err != nil {
		return err
	}
	defer theirs.Free()
	for _, p := range theirs.OwnState() {
		values, err := replicas.RecvBytes(replica, comm.TagSection)
		if err != nil {
			return err
		}
		copy(tensor.Of[byte](p.Mem), values)
	}
	return whole.Adopt(theirs, false)
}
