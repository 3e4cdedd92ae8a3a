package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	workerpb "example.com/worker/gen/dragoman/worker/v1"
	a2apb "example.com/worker/gen/lf/a2a/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Time until the first and until any later attempt to connect again.
const firstPause, longestPause = 500 * time.Millisecond, 15 * time.Second

// Agent is what a worker serves. Run runs one turn; an error ends the task as FAILED.
type Agent struct {
	Registration *workerpb.AgentRegistration
	Run          func(*Turn) error
}

// Worker registers its agents, runs the turns it receives, and reconnects when the stream breaks.
type Worker struct {
	server Server
	agents map[string]Agent

	mutex    sync.Mutex
	line     *Line
	turns    map[string]*Turn
	draining bool
	pause    time.Duration
}

// NewWorker returns a worker with so many concurrent turns of each agent.
func NewWorker(server Server, turns uint32, agents ...Agent) *Worker {
	worker := &Worker{server: server, agents: map[string]Agent{}, turns: map[string]*Turn{}, pause: firstPause}
	for _, agent := range agents {
		agent.Registration.Turns = turns
		worker.agents[agent.Registration.Id] = agent
	}
	return worker
}

// Run serves until Drain is done. Returns an error if the server rejects the worker for good.
func (w *Worker) Run(ctx context.Context) error {
	for {
		err := w.serve(ctx)
		w.mutex.Lock()
		isDone, pause := w.draining, w.pause
		w.pause = min(2*w.pause, longestPause)
		w.mutex.Unlock()
		if isDone {
			return nil
		}
		if isPermanent(err) {
			return fmt.Errorf("%s: %s", codeName(err), status.Convert(err).Message())
		}
		log.Printf("the connection is broken (%v); connecting again in %s", err, pause)
		time.Sleep(pause)
	}
}

// Drain accepts no more turns, and disconnects when the running ones have ended.
func (w *Worker) Drain() {
	w.mutex.Lock()
	w.draining = true
	line, isIdle := w.line, len(w.turns) == 0
	w.mutex.Unlock()
	if line == nil {
		return
	}
	line.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_Drain{Drain: &workerpb.Drain{}}})
	if isIdle {
		line.Finish()
	}
}

// isPermanent: the configuration has to change before a connection can succeed.
func isPermanent(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.AlreadyExists, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// codeName returns a status code as the protocol writes it.
func codeName(err error) string {
	names := map[codes.Code]string{
		codes.InvalidArgument: "INVALID_ARGUMENT", codes.AlreadyExists: "ALREADY_EXISTS",
		codes.Unauthenticated: "UNAUTHENTICATED", codes.PermissionDenied: "PERMISSION_DENIED",
		codes.Unimplemented: "UNIMPLEMENTED",
	}
	return names[status.Code(err)]
}

// serve connects and handles frames until the stream ends; returns why.
func (w *Worker) serve(ctx context.Context) error {
	line, err := Dial(ctx, w.server)
	if err != nil {
		return err
	}
	defer line.Close()
	w.mutex.Lock()
	w.line = line
	isDone := w.draining
	w.mutex.Unlock()
	if isDone { // Drain found no line to end
		return nil
	}
	host, _ := os.Hostname()
	hello := &workerpb.Hello{Name: fmt.Sprintf("%s:%d", host, os.Getpid())}
	for _, agent := range w.agents {
		hello.Agents = append(hello.Agents, agent.Registration)
	}
	line.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_Hello{Hello: hello}})
	for {
		frame, err := line.Receive()
		if err != nil {
			w.mutex.Lock()
			w.line = nil
			for id, turn := range w.turns {
				delete(w.turns, id)
				turn.stop("the connection to the server is broken")
			}
			w.mutex.Unlock()
			return err
		}
		w.receive(line, frame)
	}
}

func (w *Worker) receive(line *Line, frame *workerpb.ConnectResponse) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch one := frame.Frame.(type) {
	case *workerpb.ConnectResponse_Welcome:
		w.pause = firstPause
		for id := range w.agents {
			log.Printf("serving %s at %s", id, w.server.Address)
		}
	case *workerpb.ConnectResponse_TurnStart:
		turn := newTurn(one.TurnStart, line)
		w.turns[turn.ID()] = turn
		go w.run(line, turn)
	case *workerpb.ConnectResponse_Committed:
		if turn := w.turns[one.Committed.TurnId]; turn != nil {
			turn.confirm(one.Committed.Number)
		}
	case *workerpb.ConnectResponse_Cancel:
		if turn := w.turns[one.Cancel.TurnId]; turn != nil {
			turn.stop(one.Cancel.Reason)
		}
	case *workerpb.ConnectResponse_TurnRevoked:
		if turn := w.turns[one.TurnRevoked.TurnId]; turn != nil {
			delete(w.turns, turn.ID()) // nothing more is sent for it
			turn.stop(one.TurnRevoked.Reason)
		}
	}
}

// run runs a turn, and sends its end and a credit for another one.
func (w *Worker) run(line *Line, turn *Turn) {
	end := w.end(turn)
	w.mutex.Lock()
	_, isOurs := w.turns[turn.ID()]
	delete(w.turns, turn.ID())
	isDraining, isLast := w.draining, len(w.turns) == 0
	w.mutex.Unlock()
	if isOurs {
		line.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_TurnEnd{TurnEnd: end}})
	}
	if !isDraining {
		credit := &workerpb.Credit{AgentId: turn.start.AgentId, Turns: 1}
		line.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_Credit{Credit: credit}})
	} else if isLast {
		line.Finish()
	}
}

// end returns the result of a turn.
func (w *Worker) end(turn *Turn) *workerpb.TurnEnd {
	err := w.attempt(turn)
	var ended *Ended
	switch {
	case err == nil:
		end := ending(a2apb.TaskState_TASK_STATE_COMPLETED, "")
		end.TurnId, end.Artifacts = turn.ID(), turn.artifacts
		return end
	case errors.As(err, &ended):
		ended.end.TurnId = turn.ID()
		return ended.end
	case turn.Context().Err() != nil:
		return &workerpb.TurnEnd{
			TurnId: turn.ID(), Outcome: &workerpb.TurnEnd_Canceled{Canceled: &workerpb.Canceled{}},
		}
	}
	log.Printf("agent %s failed in turn %s: %v", turn.start.AgentId, turn.ID(), err)
	text := err.Error()
	if !turn.start.ShowErrorTexts {
		text = "the agent failed; its log has the reason, with turn " + turn.ID()
	}
	end := ending(a2apb.TaskState_TASK_STATE_FAILED, text)
	end.TurnId = turn.ID()
	return end
}

// attempt runs the agent. A panic is its error, and ends nothing else.
func (w *Worker) attempt(turn *Turn) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	return w.agents[turn.start.AgentId].Run(turn)
}
