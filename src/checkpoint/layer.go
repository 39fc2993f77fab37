package checkpoint

import (
	"encoding/json"
	"fmt"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// Layer reads a layer of a model's chain, or a replica's part of a layer. The part may have been
// written by other replicas.
func (c *Checkpoint) Layer(id int, shape model.Config, d device.Device, t tensor.DType) (*model.Layer, error) {
	spread := 0
	if c.sharedOut(id) {
		if spread = c.Layout.Mesh.Replicas; shape.Shared() == 0 {
			return nil, c.fail(ManifestFile, fmt.Errorf("layer %d: %d replicas share out a layer that has nothing to share", id, spread))
		}
	}
	had := shape.AsReplica(shape.Replica, spread)
	had.Pieces = piece.Assignment{}
	if spread > 0 {
		had.Pieces = c.Layout.Pieces
	}
	if _, err := had.Holders(shape.Chain()[id].Block); err != nil {
		return nil, c.fail(ManifestFile, fmt.Errorf("layer %d: %w", id, err))
	}
	same := had.Replica == shape.Replica && had.Spread == shape.Spread && had.Pieces.Equal(shape.Pieces)
	if same && shape.CountPieces() == 0 || spread == 0 && shape.SameParameters(shape.Whole(), id) {
		return c.layer(id, shape, d, t)
	}
	return c.shared(id, shape, had, d, t)
}

// shared reads a replica's part of a layer that replicas divided. It goes through the parts of all
// writing replicas; parts that this replica does not need are not read. had is the model of a
// writing replica. If had is not divided, the file has the whole layer.
func (c *Checkpoint) shared(id int, shape, had model.Config, d device.Device, t tensor.DType) (made *model.Layer, err error) {
	host := cpu.New(device.NewWall())
	for replica := range max(1, had.Spread) {
		of := had.AsReplica(replica, had.Spread)
		of.Shards = 0
		if made != nil && !of.Supplies(shape, id) {
			continue
		}
		had, err := c.layer(id, of, host, t)
		if err == nil && made == nil {
			made, err = had.Like(shape, d)
		}
		if err == nil {
			err = made.Adopt(had, false)
		}
		if had != nil {
			had.Free()
		}
		if err != nil {
			if made != nil {
				made.Free()
			}
			return nil, err
		}
	}
	return made, nil
}

// layer reads a layer as it was written, with the separate part of the shape's replica.
func (c *Checkpoint) layer(id int, shape model.Config, d device.Device, t tensor.DType) (*model.Layer, error) {
	state, err := c.open(stateFile(id))
	if err != nil {
		return nil, err
	}
	sections, err := c.sections(state)
	if err != nil {
		return nil, err
	}
	l, err := model.Restore(shape, sections, d, t)
	if err != nil {
		return nil, c.fail(stateFile(id), err)
	}
	if l.ID != id {
		err = c.fail(stateFile(id), fmt.Errorf("holds layer %d", l.ID))
	} else {
		err = c.fill(l, state, shape.Replica, d)
	}
	if err != nil {
		l.Free()
		return nil, err
	}
	return l, nil
}

// sections returns the sections of a layer that a state file names. fillPieces knows the lengths of
// sections that only the update reads.
func (c *Checkpoint) sections(state *weights.File) (list []model.Section, err error) {
	if err := json.Unmarshal([]byte(state.Metadata[sectionsKey]), &list); err != nil {
		return nil, c.fail(state.Name, fmt.Errorf("metadata: %s: %w", sectionsKey, err))
	}
	for _, s := range list {
		if s.Bytes != int64(len(s.Text)) {
			return nil, c.fail(state.Name, fmt.Errorf("metadata: %s: %.100q: %d bytes of text, want %d", sectionsKey, s.Name, len(s.Text), s.Bytes))
		}
	}
	for _, t := range state.Tensors {
		if s := (model.Section{Name: t.Name, Bytes: t.Bytes()}); !s.ForUpdate() {
			list = append(list, s)
		}
	}
	return list, nil
}

// fill sets the values of a layer from its files. The state file was opened last.
func (c *Checkpoint) fill(l *model.Layer, state *weights.File, replica int, d device.Device) error {
	rest, _ := l.Rest()
	if err := c.fillPieces(rest, state, d); err != nil {
		return err
	}
	if err := c.fillFrom(weightsFile(l.ID), l.Weights(), d); err != nil {
		return err
	}
	if l.Own() {
		if err := c.fillFrom(ownFile(l.ID, replica), l.OwnState(), d); err != nil {
			return err
		}
	}
	if err := l.CheckStructure(); err != nil {
		return c.fail(weightsFile(l.ID), err)
	}
	return nil
}

// fillFrom sets the pieces with the names of a file's tensors.
func (c *Checkpoint) fillFrom(name string, pieces []model.StateTensor, d device.Device) error {
	f, err := c.open(name)
	if err != nil {
		return err
	}
	return c.fillPieces(pieces, f, d)
}
