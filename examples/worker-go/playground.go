package main

import (
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"time"

	workerpb "example.com/worker/gen/dragoman/worker/v1"
	a2apb "example.com/worker/gen/lf/a2a/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

const streamRule = "stream N [MS]: N is a whole number from 1 to 100000, MS one from 0 to 60000"

// Playground executes the command in the first word of a message, like the server's built-in playground.
func Playground(id string) Agent {
	card := &a2apb.AgentCard{
		Name:               "Playground in Go",
		Description:        "Runs the command in the first word of a message; for trying out clients",
		Version:            "1.0.0",
		DefaultInputModes:  []string{"text/plain", "application/json", "application/octet-stream", "text/csv"},
		DefaultOutputModes: []string{"text/plain", "application/json"},
		Skills: []*a2apb.AgentSkill{
			skill("echo", "Echo", "Returns TEXT as an artifact", "artifact", "echo hello", "hello"),
			skill("stream", "Stream", "stream N [MS]: N chunks, MS milliseconds apart", "streaming", "stream 5 200"),
			skill("sleep", "Sleep", "sleep S: works for S seconds; can be canceled", "cancel", "sleep 10"),
			skill("steps", "Durable steps", "steps N: N random numbers, each drawn once, and a pause", "steps", "steps 3"),
			skill("ends", "Ways to end", "ask, auth, fail, reject and reply TEXT", "states", "ask", "fail"),
			skill("parts", "Kinds of parts", "file returns a small text file, data an object", "parts", "file", "data"),
		},
	}
	return Agent{&workerpb.AgentRegistration{Id: id, Card: card, Direct: true}, run}
}

func skill(id, name, description, tag string, examples ...string) *a2apb.AgentSkill {
	return &a2apb.AgentSkill{Id: id, Name: name, Description: description, Tags: []string{tag}, Examples: examples}
}

func run(turn *Turn) error {
	if turn.Question() != nil {
		return turn.Result("", textPart("you said: "+turn.Text()))
	}
	command, rest, _ := strings.Cut(turn.Text(), " ")
	switch command {
	case "echo":
		if rest != "" {
			return turn.Result("", textPart(rest))
		}
	case "stream":
		return stream(turn, strings.Fields(rest))
	case "sleep":
		return sleep(turn, strings.TrimSpace(rest))
	case "steps":
		return steps(turn, rest)
	case "ask":
		return turn.Ask("what would you like to say?")
	case "auth":
		return turn.NeedAuth("authenticate, then send anything")
	case "fail":
		return errors.New("failing, as asked")
	case "reject":
		return turn.Reject("rejecting, as asked")
	case "reply":
		if rest != "" {
			return turn.Reply(rest)
		}
	case "file":
		raw := &a2apb.Part_Raw{Raw: []byte("hello from the playground\n")}
		return turn.Result("hello.txt", &a2apb.Part{Content: raw, Filename: "hello.txt", MediaType: "text/plain"})
	case "data":
		nested := map[string]any{"true": true, "nothing": nil}
		value, err := structpb.NewValue(map[string]any{"hello": "world", "numbers": []any{1, 2, 3}, "nested": nested})
		if err != nil {
			return err
		}
		return turn.Result("", &a2apb.Part{Content: &a2apb.Part_Data{Data: value}})
	}
	if text := turn.Text(); text != "" {
		return turn.Result("", textPart(text))
	}
	return turn.Result("", turn.Message().Parts...)
}

func stream(turn *Turn, words []string) error {
	if len(words) != 1 && len(words) != 2 {
		return turn.Reject(streamRule)
	}
	count, err := strconv.Atoi(words[0])
	if err != nil || count < 1 || count > 100_000 {
		return turn.Reject(streamRule)
	}
	pause := 0
	if len(words) == 2 {
		if pause, err = strconv.Atoi(words[1]); err != nil || pause < 0 || pause > 60_000 {
			return turn.Reject(streamRule)
		}
	}
	for number := 1; number <= count; number++ {
		if number > 1 && pause > 0 {
			if err := turn.Sleep(time.Duration(pause) * time.Millisecond); err != nil {
				return err
			}
		}
		if err := turn.Chunk(fmt.Sprintf("chunk-%d ", number)); err != nil {
			return err
		}
	}
	return nil
}

func sleep(turn *Turn, rest string) error {
	seconds, err := strconv.ParseFloat(rest, 64)
	if err != nil || !(seconds >= 0 && seconds <= 3600) {
		return turn.Reject("sleep S: S is a number of seconds from 0 to 3600")
	}
	if err := turn.Status("sleeping for " + strconv.FormatFloat(seconds, 'g', -1, 64) + " s"); err != nil {
		return err
	}
	return turn.Sleep(time.Duration(seconds * float64(time.Second)))
}

func steps(turn *Turn, rest string) error {
	count, _ := strconv.Atoi(rest)
	var drawn []string
	for range count {
		number, err := Step(turn, "draw", func() (float64, error) { return rand.Float64(), nil })
		if err != nil {
			return err
		}
		drawn = append(drawn, strconv.FormatFloat(number, 'g', -1, 64))
	}
	if err := turn.Status("drawn: " + strings.Join(drawn, " ")); err != nil {
		return err
	}
	if err := turn.Pause(time.Second); err != nil {
		return err
	}
	return turn.Result("", textPart(strings.Join(drawn, " ")))
}
