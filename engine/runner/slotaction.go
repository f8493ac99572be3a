package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// Stater is an Engine that can write down what a session holds, and take it back.
type Stater interface {
	Engine
	// Save writes the state of a session and returns the number of bytes. The session does not change meanwhile; passes
	// over others may run.
	Save(ctx context.Context, session batch.Session, w io.Writer) (int64, error)
	// StateTokens returns how many tokens are in a state of size bytes that r begins with, as far as its head says. It is
	// cheap, and finds states that cannot be taken back.
	StateTokens(r io.Reader, size int64) (int, error)
	// Restore makes a session of a state and returns it with its tokens.
	Restore(ctx context.Context, r io.Reader, size int64) (batch.Session, []int32, error)
}

// savedView answers save.
type savedView struct {
	Slot     int    `json:"id_slot"`
	Filename string `json:"filename"`
	Saved    int    `json:"n_saved"`
	Written  int64  `json:"n_written"`
	Timings  struct {
		SaveMS float64 `json:"save_ms"`
	} `json:"timings"`
}

// restoredView answers restore.
type restoredView struct {
	Slot     int    `json:"id_slot"`
	Filename string `json:"filename"`
	Restored int    `json:"n_restored"`
	Read     int64  `json:"n_read"`
	Timings  struct {
		RestoreMS float64 `json:"restore_ms"`
	} `json:"timings"`
}

// erasedView answers erase.
type erasedView struct {
	Slot   int `json:"id_slot"`
	Erased int `json:"n_erased"`
}

// slotAction saves, restores or erases what a slot holds. All wait until the slot is idle.
func (s *service) slotAction(w http.ResponseWriter, r *http.Request) *problem {
	stater, ok := s.parts.Engine.(Stater)
	if s.states == nil || !ok {
		return &problem{
			status: http.StatusNotImplemented, kind: typeUnsupported,
			message: "This server does not support slots action. Start it with `--slot-save-path`",
		}
	}
	slot, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || slot < 0 || slot >= s.parts.Slots {
		return badBody("Invalid slot ID")
	}
	action := r.URL.Query().Get("action")
	switch action {
	case "save", "restore":
	case "erase":
		return s.eraseSlot(w, r, slot)
	default:
		return badBody("Invalid action")
	}
	f, p := readFields(r)
	if p != nil {
		return p
	}
	name := f.text("filename", "")
	switch {
	case f.problem != nil:
		return f.problem
	case !validName(name):
		return badBody("Invalid filename")
	case action == "save":
		return s.saveSlot(w, r, stater, slot, name)
	}
	return s.restoreSlot(w, r, stater, slot, name)
}

func (s *service) saveSlot(w http.ResponseWriter, r *http.Request, stater Stater, slot int, name string) *problem {
	v := savedView{Slot: slot, Filename: name}
	var begun time.Time
	var file *stateFile
	tokens, err := s.scheduler.Save(r.Context(), slot, func(ctx context.Context, session batch.Session) (err error) {
		begun = time.Now()
		if file, err = s.states.create(); err != nil {
			return err
		}
		v.Written, err = stater.Save(ctx, session, file)
		return err
	})
	if file != nil {
		defer file.discard()
	}
	if err == nil {
		err = file.finish(name) // the slot is free already: a disk may need a while
	}
	if err != nil {
		return s.slotFailed(r, slot, "Unable to save slot", err)
	}
	v.Saved, v.Timings.SaveMS = tokens, milliseconds(time.Since(begun))
	writeJSON(w, http.StatusOK, v)
	return nil
}

func (s *service) restoreSlot(w http.ResponseWriter, r *http.Request, stater Stater, slot int, name string) *problem {
	v := restoredView{Slot: slot, Filename: name}
	file, size, err := s.states.open(name)
	if err != nil {
		return s.slotFailed(r, slot, "Unable to restore slot", err)
	}
	defer file.Close()
	// What cannot be taken back is known before the slot loses what it has.
	if v.Restored, err = stater.StateTokens(file, size); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return s.slotFailed(r, slot, "Unable to restore slot", err)
	}
	var begun time.Time
	err = s.scheduler.Restore(r.Context(), slot, func(ctx context.Context) (batch.Session, []int32, error) {
		begun = time.Now()
		return stater.Restore(ctx, file, size)
	})
	if err != nil {
		return s.slotFailed(r, slot, "Unable to restore slot", err)
	}
	v.Read, v.Timings.RestoreMS = size, milliseconds(time.Since(begun))
	writeJSON(w, http.StatusOK, v)
	return nil
}

func (s *service) eraseSlot(w http.ResponseWriter, r *http.Request, slot int) *problem {
	tokens, err := s.scheduler.Erase(r.Context(), slot)
	if err != nil {
		return s.slotFailed(r, slot, "Unable to erase slot", err)
	}
	writeJSON(w, http.StatusOK, erasedView{Slot: slot, Erased: tokens})
	return nil
}

// slotFailed turns what went wrong into a problem. What is wrong with the file that the client has named is the client's.
func (s *service) slotFailed(r *http.Request, slot int, what string, err error) *problem {
	if errors.Is(err, batch.ErrStopped) {
		return stopping()
	}
	cause := reason(err)
	if r.Context().Err() == nil {
		s.cfg.Log.Warn(what, "slot", slot, "why", cause)
	}
	_, state := errors.AsType[*model.StateError](err)
	_, tooLong := errors.AsType[*model.ContextError](err)
	switch {
	case tooLong:
		return badBody("%s: Restored prompt does not fit in the slot context: %v", what, cause)
	case state, errors.Is(err, errNotFile):
		return badBody("%s: %v", what, cause)
	case errors.Is(err, fs.ErrNotExist):
		return badBody("%s: there is no such file", what)
	}
	p := broken(err)
	p.message = what + ": " + cause.Error()
	return p
}
