package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	workerpb "example.com/worker/gen/dragoman/worker/v1"
	a2apb "example.com/worker/gen/lf/a2a/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// window is the number of uncommitted frames after which a method waits. The server ends a turn at a much higher one.
const window = 64

// Ended is the error of the methods that end a turn: return it from the agent.
type Ended struct{ end *workerpb.TurnEnd }

func (e *Ended) Error() string { return "the turn has ended" }

// Turn is what an agent gets: the message to answer, and methods to answer it. They return an error when the agent has
// to stop, because the task was canceled or the connection broke.
type Turn struct {
	start     *workerpb.TurnStart
	line      *Line
	began     time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	artifacts []*workerpb.ArtifactChange
	begun     map[string]bool // artifacts with a chunk
	position  int32           // of the next step
	uses      map[string]uint32

	mutex     sync.Mutex
	changed   *sync.Cond
	number    uint64 // of the last frame
	committed uint64
}

func newTurn(start *workerpb.TurnStart, line *Line) *Turn {
	turn := &Turn{start: start, line: line, began: time.Now(), begun: map[string]bool{}, uses: map[string]uint32{}}
	turn.ctx, turn.cancel = context.WithCancelCause(context.Background())
	turn.changed = sync.NewCond(&turn.mutex)
	return turn
}

// ID of the turn.
func (t *Turn) ID() string { return t.start.TurnId }

// Context is canceled when the agent has to stop.
func (t *Turn) Context() context.Context { return t.ctx }

// Message to answer.
func (t *Turn) Message() *a2apb.Message { return t.start.Message }

// Question is the agent's last one; nil in a first turn.
func (t *Turn) Question() *a2apb.Message { return t.start.Question }

// Text returns the text parts of the message, joined by line breaks.
func (t *Turn) Text() string {
	var texts []string
	for _, part := range t.Message().GetParts() {
		if text, ok := part.Content.(*a2apb.Part_Text); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Status reports progress.
func (t *Turn) Status(text string) error {
	change := &workerpb.StatusChange{State: a2apb.TaskState_TASK_STATE_WORKING, Message: message(text)}
	return t.put(&workerpb.Event{Event: &workerpb.Event_Status{Status: change}})
}

// Chunk appends text to the turn's artifact; its first chunk begins it.
func (t *Turn) Chunk(text string) error {
	id := "output"
	if t.start.TurnsBefore > 0 {
		id = fmt.Sprintf("output-%d", t.start.TurnsBefore+1)
	}
	chunk := &workerpb.TextChunk{ArtifactId: id, Text: text, Append: t.begun[id]}
	t.begun[id] = true
	return t.put(&workerpb.Event{Event: &workerpb.Event_Text{Text: chunk}})
}

// Result adds an artifact, which is sent with the end of the turn.
func (t *Turn) Result(name string, parts ...*a2apb.Part) error {
	artifact := &a2apb.Artifact{ArtifactId: rand.Text(), Name: name, Parts: parts}
	t.artifacts = append(t.artifacts, &workerpb.ArtifactChange{Artifact: artifact})
	return nil
}

// Ask ends the turn with a question.
func (t *Turn) Ask(text string) error {
	return &Ended{ending(a2apb.TaskState_TASK_STATE_INPUT_REQUIRED, text)}
}

// NeedAuth ends the turn until the caller has authenticated.
func (t *Turn) NeedAuth(text string) error {
	return &Ended{ending(a2apb.TaskState_TASK_STATE_AUTH_REQUIRED, text)}
}

// Reject ends the task without doing it.
func (t *Turn) Reject(text string) error {
	return &Ended{ending(a2apb.TaskState_TASK_STATE_REJECTED, text)}
}

// Reply answers with a message in place of a task; only for `direct` agents.
func (t *Turn) Reply(text string) error {
	return &Ended{&workerpb.TurnEnd{Outcome: &workerpb.TurnEnd_Reply{Reply: message(text)}}}
}

// Sleep waits, unless the agent has to stop.
func (t *Turn) Sleep(duration time.Duration) error {
	select {
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-time.After(duration):
		return nil
	}
}

// Step returns what `run` returned in an earlier run of this turn, or runs it and stores its result.
func Step[V any](t *Turn, name string, run func() (V, error)) (V, error) {
	var value V
	stored, step, err := t.step(name)
	if err != nil {
		return value, err
	}
	if stored.GetState() == workerpb.StepState_STEP_STATE_DONE {
		return value, json.Unmarshal(stored.GetResult().GetRaw(), &value)
	}
	step.Started = timestamppb.New(t.now())
	if value, err = run(); err != nil {
		return value, err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return value, err
	}
	step.State, step.Ended = workerpb.StepState_STEP_STATE_DONE, timestamppb.New(t.now())
	step.Result = &a2apb.Part{Content: &a2apb.Part_Raw{Raw: raw}, MediaType: "application/json"}
	return value, t.store(step)
}

// Pause releases the turn for this long; then the agent is called again, and gets past this line.
func (t *Turn) Pause(duration time.Duration) error {
	stored, step, err := t.step("sleep")
	if err != nil {
		return err
	}
	until := t.now().Add(duration)
	if stored != nil {
		if until = stored.WakeAt.AsTime(); !until.After(t.now()) {
			return nil
		}
	}
	step.State, step.Started, step.WakeAt = workerpb.StepState_STEP_STATE_SLEEPING, timestamppb.New(t.now()), timestamppb.New(until)
	if err := t.store(step); err != nil {
		return err
	}
	return &Ended{&workerpb.TurnEnd{Outcome: &workerpb.TurnEnd_Pause{Pause: &workerpb.Pause{Until: step.WakeAt}}}}
}

// now is the time of the server's store, which this machine's clock need not have.
func (t *Turn) now() time.Time { return t.start.Now.AsTime().Add(time.Since(t.began)) }

// step returns the stored step at the next place, nil if there is none, and a new one for that place.
func (t *Turn) step(name string) (stored, next *workerpb.Step, err error) {
	t.uses[name]++
	next = &workerpb.Step{Name: name, Number: t.uses[name], Position: t.position, Attempt: 1}
	t.position++
	for _, one := range t.start.Steps {
		if one.Position != next.Position {
			continue
		}
		if one.Name != next.Name || one.Number != next.Number {
			return nil, nil, fmt.Errorf("step %d is %q, and was %q in an earlier run", t.position, name, one.Name)
		}
		return one, next, nil
	}
	return nil, next, nil
}

// store sends a step, and returns when it is committed.
func (t *Turn) store(step *workerpb.Step) error {
	update := &workerpb.StateUpdate{Steps: []*workerpb.Step{step}}
	return t.send(&workerpb.Events{StateUpdate: update}, 1)
}

func (t *Turn) put(event *workerpb.Event) error {
	return t.send(&workerpb.Events{Events: []*workerpb.Event{event}}, window)
}

// send sends a frame, and returns when fewer than `open` frames are uncommitted.
func (t *Turn) send(events *workerpb.Events, open uint64) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	t.number++
	events.TurnId, events.Number = t.ID(), t.number
	t.line.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_Events{Events: events}})
	for t.number-t.committed >= open && t.ctx.Err() == nil {
		t.changed.Wait()
	}
	return context.Cause(t.ctx)
}

func (t *Turn) confirm(number uint64) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.committed = number
	t.changed.Broadcast()
}

func (t *Turn) stop(reason string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.cancel(errors.New(reason))
	t.changed.Broadcast()
}

func ending(state a2apb.TaskState, text string) *workerpb.TurnEnd {
	change := &workerpb.StatusChange{State: state}
	if text != "" {
		change.Message = message(text)
	}
	return &workerpb.TurnEnd{Outcome: &workerpb.TurnEnd_Status{Status: change}}
}

func message(text string) *a2apb.Message {
	return &a2apb.Message{Parts: []*a2apb.Part{textPart(text)}}
}

func textPart(text string) *a2apb.Part {
	return &a2apb.Part{Content: &a2apb.Part_Text{Text: text}}
}
