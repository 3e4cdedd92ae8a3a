package main

import (
	"context"
	"encoding/json"
	"iter"

	"dragoman.test/checks"
	legacy "github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
)

// caller adapts a client of the SDK. old: it speaks 0.3.
type caller struct {
	client   *a2aclient.Client
	resolver *agentcard.Resolver
	url      string
	binding  a2a.TransportProtocol
	old      bool
}

func (c *caller) Errors() checks.Errors {
	found := checks.Errors{
		NotFound: a2a.ErrTaskNotFound, NotCancelable: a2a.ErrTaskNotCancelable, InvalidParams: a2a.ErrInvalidParams,
		ContentType: a2a.ErrUnsupportedContentType, Unsupported: a2a.ErrUnsupportedOperation,
		NoPush: a2a.ErrPushNotificationNotSupported, Extension: a2a.ErrExtensionSupportRequired,
	}
	if c.old && c.binding == a2a.TransportProtocolGRPC { // only the status code is read, as 1.0 has them
		found.ContentType, found.Unsupported, found.NoPush = nil, nil, nil
	}
	return found
}

func (c *caller) Card(ctx context.Context) (string, bool, error) {
	card, err := c.resolver.Resolve(ctx, c.url)
	if err != nil {
		return "", false, err
	}
	return card.Name, card.Capabilities.Streaming, nil
}

func (c *caller) ExtendedCard(ctx context.Context) error {
	_, err := c.client.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{})
	return err
}

func (c *caller) Send(ctx context.Context, request checks.Request) (checks.Answer, error) {
	result, err := c.client.SendMessage(ctx, sending(request))
	if err != nil {
		return checks.Answer{}, err
	}
	if message, ok := result.(*a2a.Message); ok {
		return checks.Answer{Message: parts(message.Parts)}, nil
	}
	return checks.Answer{Task: task(result.(*a2a.Task))}, nil
}

func (c *caller) Stream(ctx context.Context, request checks.Request) iter.Seq2[checks.Event, error] {
	return events(c.client.SendStreamingMessage(ctx, sending(request)))
}

func (c *caller) Subscribe(ctx context.Context, id string) iter.Seq2[checks.Event, error] {
	return events(c.client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: a2a.TaskID(id)}))
}

func (c *caller) Get(ctx context.Context, id string, history int) (*checks.Task, error) {
	request := &a2a.GetTaskRequest{ID: a2a.TaskID(id)}
	if history >= 0 {
		request.HistoryLength = &history
	}
	return taskOr(c.client.GetTask(ctx, request))
}

func (c *caller) List(ctx context.Context, conversation, token string, size int) (checks.Page, error) {
	request := &a2a.ListTasksRequest{ContextID: conversation, PageToken: token, PageSize: size}
	found, err := c.client.ListTasks(ctx, request)
	if err != nil {
		return checks.Page{}, err
	}
	page := checks.Page{Total: found.TotalSize, Next: found.NextPageToken}
	for _, one := range found.Tasks {
		page.IDs = append(page.IDs, string(one.ID))
	}
	return page, nil
}

func (c *caller) Cancel(ctx context.Context, id string) (*checks.Task, error) {
	return taskOr(c.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: a2a.TaskID(id)}))
}

func (c *caller) SetWebhook(ctx context.Context, webhook checks.Webhook) (checks.Webhook, error) {
	return webhookOr(c.client.CreateTaskPushConfig(ctx, pushConfig(webhook)))
}

func (c *caller) GetWebhook(ctx context.Context, task, id string) (checks.Webhook, error) {
	return webhookOr(c.client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: a2a.TaskID(task), ID: id}))
}

func (c *caller) ListWebhooks(ctx context.Context, task string) ([]checks.Webhook, error) {
	found, err := c.client.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: a2a.TaskID(task)})
	var all []checks.Webhook
	for _, one := range found {
		all = append(all, webhook(one))
	}
	return all, err
}

func (c *caller) DeleteWebhook(ctx context.Context, task, id string) error {
	return c.client.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: a2a.TaskID(task), ID: id})
}

// Delivery of 0.3 is the task itself.
func (c *caller) Delivery(body []byte) (checks.Event, error) {
	if c.old {
		var found legacy.Task
		if err := json.Unmarshal(body, &found); err != nil {
			return checks.Event{}, err
		}
		converted, err := a2av0.ToV1Task(&found)
		if err != nil {
			return checks.Event{}, err
		}
		return event(converted), nil
	}
	var found a2a.StreamResponse
	err := json.Unmarshal(body, &found)
	if err != nil {
		return checks.Event{}, err
	}
	return event(found.Event), nil
}

func sending(request checks.Request) *a2a.SendMessageRequest {
	message := a2a.NewMessage(a2a.MessageRoleUser)
	message.TaskID, message.ContextID = a2a.TaskID(request.Task), request.Context
	for _, one := range request.Parts {
		part := a2a.NewTextPart(one.Text)
		switch {
		case one.Raw != nil:
			part = a2a.NewRawPart(one.Raw)
		case one.URL != "":
			part = a2a.NewFileURLPart(a2a.URL(one.URL), one.Media)
		case one.Data != nil:
			part = a2a.NewDataPart(one.Data)
		}
		part.Filename, part.MediaType = one.Name, one.Media
		message.Parts = append(message.Parts, part)
	}
	config := &a2a.SendMessageConfig{ReturnImmediately: request.Now}
	sent := &a2a.SendMessageRequest{Tenant: request.Agent, Message: message, Config: config}
	if request.Hook != nil {
		sent.Config.PushConfig = pushConfig(*request.Hook)
	}
	return sent
}

func pushConfig(webhook checks.Webhook) *a2a.PushConfig {
	auth := &a2a.PushAuthInfo{Scheme: webhook.Scheme, Credentials: webhook.Credentials}
	return &a2a.PushConfig{
		TaskID: a2a.TaskID(webhook.Task), ID: webhook.ID, URL: webhook.URL, Token: webhook.Token, Auth: auth,
	}
}

func webhook(config *a2a.PushConfig) checks.Webhook {
	found := checks.Webhook{Task: string(config.TaskID), ID: config.ID, URL: config.URL, Token: config.Token}
	if config.Auth != nil {
		found.Scheme, found.Credentials = config.Auth.Scheme, config.Auth.Credentials
	}
	return found
}

func webhookOr(config *a2a.PushConfig, err error) (checks.Webhook, error) {
	if err != nil {
		return checks.Webhook{}, err
	}
	return webhook(config), nil
}

func parts(given a2a.ContentParts) (found []checks.Part) {
	for _, one := range given {
		found = append(found, checks.Part{
			Text: one.Text(), Raw: one.Raw(), URL: string(one.URL()), Data: one.Data(),
			Name: one.Filename, Media: one.MediaType,
		})
	}
	return found
}

func text(message *a2a.Message) string {
	said := ""
	if message != nil {
		for _, one := range message.Parts {
			said += one.Text()
		}
	}
	return said
}

func task(given *a2a.Task) *checks.Task {
	found := &checks.Task{ID: string(given.ID), Context: given.ContextID, State: checks.Word(string(given.Status.State))}
	found.Said = text(given.Status.Message)
	for _, artifact := range given.Artifacts {
		found.Parts = append(found.Parts, parts(artifact.Parts)...)
	}
	for _, message := range given.History {
		found.History = append(found.History, text(message))
	}
	return found
}

func taskOr(given *a2a.Task, err error) (*checks.Task, error) {
	if err != nil {
		return nil, err
	}
	return task(given), nil
}

func event(given a2a.Event) checks.Event {
	switch one := given.(type) {
	case *a2a.Task:
		found := task(one)
		return checks.Event{Kind: "task", TaskID: found.ID, State: found.State, Task: found}
	case *a2a.TaskStatusUpdateEvent:
		return checks.Event{Kind: "status", TaskID: string(one.TaskID), State: checks.Word(string(one.Status.State))}
	case *a2a.TaskArtifactUpdateEvent:
		found := parts(one.Artifact.Parts)
		return checks.Event{Kind: "artifact", TaskID: string(one.TaskID), Parts: found, Append: one.Append}
	default:
		return checks.Event{Kind: "message", Parts: parts(one.(*a2a.Message).Parts)}
	}
}

func events(stream iter.Seq2[a2a.Event, error]) iter.Seq2[checks.Event, error] {
	return func(yield func(checks.Event, error) bool) {
		for one, err := range stream {
			found := checks.Event{}
			if err == nil {
				found = event(one)
			}
			if !yield(found, err) {
				return
			}
		}
	}
}
