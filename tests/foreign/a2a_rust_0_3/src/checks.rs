//! The checks: one function for each sentence.

use std::time::Duration;

use a2a_protocol_sdk::client::{resolve_agent_card, ClientError, EventStream};
use a2a_protocol_sdk::prelude::{
    A2aClient, ContextId, Message, MessageId, MessageRole, MessageSendParams, Part, SendMessageResponse,
    StreamResponse, Task, TaskId, TaskQueryParams, TaskState,
};
use a2a_protocol_sdk::types::message::{FileContent, PartContent};
use a2a_protocol_sdk::types::params::{ListPushConfigsParams, ListTasksParams, SendMessageConfiguration};
use a2a_protocol_sdk::types::push::{AuthenticationInfo, TaskPushNotificationConfig};
use a2a_protocol_sdk::types::ErrorCode;
use base64::{engine::general_purpose::STANDARD, Engine};
use serde_json::json;

use crate::hook;

pub const LIMIT: Duration = Duration::from_secs(60);

pub type Checked = Result<(), String>;

/// Fails the check with a formatted text unless the condition holds.
macro_rules! require {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// `Caller` is the SDK's client on one transport.
pub struct Caller {
    pub client: A2aClient,
    pub http: String,
    pub transport: String,
}

pub fn text(error: ClientError) -> String {
    error.to_string()
}

/// Over HTTP+JSON the SDK has the status and the body of an error, and no type.
pub fn refused<T: std::fmt::Debug>(code: ErrorCode, result: Result<T, ClientError>) -> Checked {
    let reason = match code {
        ErrorCode::TaskNotFound => "TASK_NOT_FOUND",
        ErrorCode::TaskNotCancelable => "TASK_NOT_CANCELABLE",
        ErrorCode::ContentTypeNotSupported => "CONTENT_TYPE_NOT_SUPPORTED",
        ErrorCode::UnsupportedOperation => "UNSUPPORTED_OPERATION",
        ErrorCode::PushNotificationNotSupported => "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ErrorCode::ExtensionSupportRequired => "EXTENSION_SUPPORT_REQUIRED",
        _ => "INVALID_PARAMS",
    };
    match result {
        Err(ClientError::Protocol(error)) if error.code == code => Ok(()),
        Err(ClientError::UnexpectedStatus {
            status: 400..=404,
            body,
        }) if body.contains(reason) => Ok(()),
        other => Err(format!("want {code:?}, got {other:?}")),
    }
}

pub fn message(content: &str) -> MessageSendParams {
    parts(vec![Part::text(content)])
}

fn parts(parts: Vec<Part>) -> MessageSendParams {
    let message = Message {
        id: MessageId::new("m-1"),
        role: MessageRole::User,
        parts,
        task_id: None,
        context_id: None,
        reference_task_ids: None,
        extensions: None,
        metadata: None,
    };
    MessageSendParams {
        tenant: None,
        message,
        context_id: None,
        configuration: None,
        metadata: None,
    }
}

fn answer(task: &Task, content: &str) -> MessageSendParams {
    let mut params = message(content);
    params.message.task_id = Some(task.id.clone());
    params
}

pub fn configured(
    mut params: MessageSendParams,
    now: bool,
    hook: Option<TaskPushNotificationConfig>,
) -> MessageSendParams {
    params.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: vec!["text/plain".into()],
        task_push_notification_config: hook,
        history_length: None,
        return_immediately: Some(now),
    });
    params
}

pub fn texts(parts: &[Part]) -> String {
    parts
        .iter()
        .filter_map(|part| {
            if let PartContent::Text { text } = &part.content {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect()
}

pub fn output(task: &Task) -> Vec<Part> {
    task.artifacts
        .iter()
        .flatten()
        .flat_map(|artifact| artifact.parts.clone())
        .collect()
}

fn chunks(last: usize) -> String {
    (1..=last).map(|number| format!("chunk-{number} ")).collect()
}

/// `seen` joins the text of a stream: of its task, and of the chunks after it.
fn seen(events: &[StreamResponse]) -> String {
    events
        .iter()
        .map(|event| match event {
            StreamResponse::Task(task) => texts(&output(task)),
            StreamResponse::ArtifactUpdate(update) => texts(&update.artifact.parts),
            _ => String::new(),
        })
        .collect()
}

async fn collect(mut stream: EventStream) -> Result<Vec<StreamResponse>, ClientError> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event?);
    }
    Ok(events)
}

fn last_state(events: &[StreamResponse]) -> Option<TaskState> {
    match events.last() {
        Some(StreamResponse::StatusUpdate(update)) => Some(update.status.state),
        _ => None,
    }
}

pub fn webhook(task: &str, url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        tenant: None,
        id: Some("c".into()),
        task_id: task.into(),
        url: url.into(),
        token: Some("t0ken".into()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".into(),
            credentials: "s3cret".into(),
        }),
    }
}

impl Caller {
    pub fn new(client: A2aClient, http: &str, transport: &str) -> Self {
        Self {
            client,
            http: http.into(),
            transport: transport.into(),
        }
    }

    pub async fn task(&self, params: MessageSendParams) -> Result<Task, String> {
        match self.client.send_message(params).await.map_err(text)? {
            SendMessageResponse::Task(task) => Ok(task),
            other => Err(format!("no task: {other:?}")),
        }
    }

    async fn start(&self, content: &str) -> Result<Task, String> {
        self.task(configured(message(content), true, None)).await
    }

    async fn get(&self, id: &TaskId, history_length: Option<u32>) -> Result<Task, ClientError> {
        self.client
            .get_task(TaskQueryParams {
                tenant: None,
                id: id.0.clone(),
                history_length,
            })
            .await
    }

    pub async fn stream(&self, params: MessageSendParams) -> Result<Vec<StreamResponse>, ClientError> {
        collect(self.client.stream_message(params).await?).await
    }

    pub async fn subscribe(&self, id: &str) -> Result<Vec<StreamResponse>, ClientError> {
        collect(self.client.subscribe_to_task(id).await?).await
    }

    async fn blocking(&self) -> Checked {
        let task = self.task(message("echo hello")).await?;
        require!(
            task.status.state == TaskState::Completed && texts(&output(&task)) == "hello",
            "{task:?}"
        );
        Ok(())
    }

    async fn polled(&self) -> Checked {
        let mut task = self.start("sleep 0.5").await?;
        require!(
            matches!(task.status.state, TaskState::Submitted | TaskState::Working),
            "{task:?}"
        );
        while task.status.state != TaskState::Completed {
            task = self.get(&task.id, None).await.map_err(text)?;
            require!(task.status.state != TaskState::Failed, "{task:?}");
        }
        Ok(())
    }

    async fn streamed(&self) -> Checked {
        let events = self.stream(message("stream 5 5")).await.map_err(text)?;
        require!(
            matches!(events[0], StreamResponse::Task(_)) && seen(&events) == chunks(5),
            "{events:?}"
        );
        require!(last_state(&events) == Some(TaskState::Completed), "{events:?}");
        Ok(())
    }

    async fn follow_up(&self) -> Checked {
        for (question, state) in [("ask", TaskState::InputRequired), ("auth", TaskState::AuthRequired)] {
            let task = self.task(message(question)).await?;
            require!(task.status.state == state && task.status.message.is_some(), "{task:?}");
            let answered = self.task(answer(&task, "blue")).await?;
            require!(
                answered.id == task.id && texts(&output(&answered)) == "you said: blue",
                "{answered:?}"
            );
        }
        Ok(())
    }

    async fn states(&self) -> Checked {
        for (command, state) in [("fail", TaskState::Failed), ("reject", TaskState::Rejected)] {
            let task = self.task(message(command)).await?;
            require!(task.status.state == state, "{task:?}");
        }
        Ok(())
    }

    async fn reply(&self) -> Checked {
        let found = self.client.send_message(message("reply hi")).await.map_err(text)?;
        let SendMessageResponse::Message(reply) = found else {
            return Err(format!("{found:?}"));
        };
        require!(texts(&reply.parts) == "hi", "{reply:?}");
        if self.transport == "WebSocket" {
            return Ok(()); // there the SDK takes the end of a stream for an event, unless a task has ended
        }
        let events = self.stream(message("reply hi")).await.map_err(text)?;
        require!(matches!(&events[..], [StreamResponse::Message(_)]), "{events:?}");
        Ok(())
    }

    async fn files(&self) -> Checked {
        let raw: Vec<u8> = (0..=255).collect();
        let file = FileContent::from_bytes(STANDARD.encode(&raw))
            .with_name("x.bin")
            .with_mime_type("application/octet-stream");
        let link = FileContent::from_uri("http://127.0.0.1:1/x.csv").with_mime_type("text/csv");
        let data = json!({"numbers": [1, 2.5], "nested": {"yes": true, "empty": null}});
        let sent = parts(vec![
            Part::file(file.clone()),
            Part::file(link.clone()),
            Part::data(data.clone()),
        ]);
        let found: Vec<PartContent> = output(&self.task(sent).await?)
            .into_iter()
            .map(|part| part.content)
            .collect();
        let [PartContent::File { file: back }, PartContent::File { file: uri }, PartContent::Data { data: value }] =
            &found[..]
        else {
            return Err(format!("{found:?}"));
        };
        require!(back.bytes == file.bytes && back.name == file.name, "{back:?}");
        require!(uri.uri == link.uri && uri.mime_type == link.mime_type, "{uri:?}");
        require!(*value == data, "{value:?}");
        Ok(())
    }

    async fn canceled(&self) -> Checked {
        let task = self.start("sleep 30").await?;
        let mut stream = self.client.subscribe_to_task(task.id.0.clone()).await.map_err(text)?;
        let mut events = vec![stream.next().await.ok_or("an empty stream")?.map_err(text)?];
        let canceled = self.client.cancel_task(task.id.0.clone()).await.map_err(text)?;
        require!(canceled.status.state == TaskState::Canceled, "{canceled:?}");
        while let Some(event) = stream.next().await {
            events.push(event.map_err(text)?);
        }
        require!(last_state(&events) == Some(TaskState::Canceled), "{events:?}");
        refused(
            ErrorCode::TaskNotCancelable,
            self.client.cancel_task(task.id.0.clone()).await,
        )
    }

    async fn resumed(&self) -> Checked {
        let task = self.start("stream 20 40").await?;
        let mut first = self.client.subscribe_to_task(task.id.0.clone()).await.map_err(text)?;
        first.next().await.ok_or("an empty stream")?.map_err(text)?;
        drop(first); // closes the connection
        let events = self.subscribe(&task.id.0).await.map_err(text)?;
        require!(seen(&events) == chunks(20), "{}", seen(&events));
        Ok(())
    }

    async fn card(&self) -> Checked {
        let card = resolve_agent_card(&self.http).await.map_err(text)?;
        require!(
            card.name == "Playground" && card.capabilities.streaming == Some(true),
            "{card:?}"
        );
        Ok(())
    }

    async fn errors(&self) -> Checked {
        let none = TaskId::new("no-such-task");
        refused(ErrorCode::TaskNotFound, self.get(&none, None).await)?;
        refused(ErrorCode::TaskNotFound, self.client.cancel_task("no-such-task").await)?;
        let mut params = message("hello");
        params.message.task_id = Some(none);
        refused(ErrorCode::TaskNotFound, self.client.send_message(params.clone()).await)?;
        refused(ErrorCode::TaskNotFound, self.stream(params).await)?;
        refused(ErrorCode::TaskNotFound, self.subscribe("no-such-task").await)?;
        refused(ErrorCode::InvalidParams, self.client.send_message(parts(vec![])).await)?;
        let odd = FileContent::from_bytes("AAAA").with_mime_type("application/x-unsupported");
        refused(
            ErrorCode::ContentTypeNotSupported,
            self.client.send_message(parts(vec![Part::file(odd)])).await,
        )
    }

    async fn history(&self) -> Checked {
        let task = self.task(message("ask")).await?;
        self.task(answer(&task, "blue")).await?;
        for (length, count) in [(Some(1), 1), (None, 3)] {
            let found = self.get(&task.id, length).await.map_err(text)?;
            require!(found.history.iter().flatten().count() == count, "{found:?}");
        }
        Ok(())
    }

    async fn list(&self) -> Checked {
        let context = format!("paged {}", self.task(message("hello")).await?.id.0);
        let (mut sent, mut got, mut token) = (Vec::new(), Vec::new(), None);
        for _ in 0..5 {
            let mut params = message("hello");
            params.message.context_id = Some(ContextId::new(context.clone()));
            sent.push(self.task(params).await?.id.0);
        }
        loop {
            let params = ListTasksParams {
                context_id: Some(context.clone()),
                page_size: Some(2),
                page_token: token,
                ..ListTasksParams::default()
            };
            let page = self.client.list_tasks(params).await.map_err(text)?;
            require!(page.total_size == Some(5), "{page:?}");
            got.extend(page.tasks.iter().map(|task| task.id.0.clone()));
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        sent.sort();
        got.sort();
        require!(sent == got, "{got:?}, want {sent:?}");
        Ok(())
    }

    async fn webhooks(&self) -> Checked {
        let task = self.task(message("ask")).await?.id.0;
        let list = || ListPushConfigsParams {
            tenant: None,
            task_id: task.clone(),
            page_size: None,
            page_token: None,
        };
        for url in ["https://one.example/hook", "https://two.example/hook"] {
            let set = self.client.set_push_config(webhook(&task, url)).await.map_err(text)?;
            let got = self.client.get_push_config(task.clone(), "c").await.map_err(text)?;
            for shown in [set, got] {
                require!(
                    shown.url == url && shown.id.as_deref() == Some("c") && shown.task_id == task,
                    "{shown:?}"
                );
                // Nobody gets secrets back.
                require!(shown.token.is_none_or(|token| token.is_empty()), "the token is shown");
            }
        }
        let found = self.client.list_push_configs(list()).await.map_err(text)?;
        require!(found.configs.len() == 1, "{found:?}");
        self.client.delete_push_config(task.clone(), "c").await.map_err(text)?;
        let found = self.client.list_push_configs(list()).await.map_err(text)?;
        require!(found.configs.is_empty(), "{found:?}");
        refused(
            ErrorCode::TaskNotFound,
            self.client
                .set_push_config(webhook("none", "https://one.example/"))
                .await,
        )
    }

    async fn push(&self) -> Checked {
        let (url, mut deliveries) = hook::receiver().await.map_err(|error| error.to_string())?;
        let task = self
            .task(configured(message("stream 3 5"), false, Some(webhook("", &url))))
            .await?;
        while let Some(one) = deliveries.recv().await {
            require!(one.head.contains("authorization: bearer s3cret"), "{}", one.head);
            let event: StreamResponse = serde_json::from_slice(&one.body).map_err(|error| error.to_string())?;
            if let StreamResponse::StatusUpdate(update) = event {
                require!(update.task_id == task.id, "{update:?}");
                if update.status.state == TaskState::Completed {
                    return Ok(());
                }
            }
        }
        Err("no notification of the end".into())
    }
}

/// Runs one check, prints its lines and returns whether it passed.
macro_rules! checked {
    ($caller:expr, $client:expr, $method:ident, $operations:expr, $sentence:expr) => {{
        let ended = tokio::time::timeout(LIMIT, $caller.$method())
            .await
            .unwrap_or_else(|_| Err("too late".into()));
        let transport = format!("1.0 over {}", $caller.transport);
        match &ended {
            Ok(()) => println!("ok  {transport}: {}", $sentence),
            Err(why) => println!("FAIL  {transport}: {}: {}", $sentence, why.replace('\n', " ")),
        }
        for operation in $operations {
            println!(
                "op\t{}\t{transport}\t{operation}\t{}",
                $client,
                if ended.is_ok() { "ok" } else { "failed" }
            );
        }
        ended.is_ok()
    }};
}

/// `lists` runs the check of lists, which needs a client that names its version.
pub async fn lists(client: &str, caller: &Caller) -> bool {
    checked!(caller, client, list, ["list"], "pages of tasks follow their tokens")
}

/// `run` runs all checks; only the first if `short`.
pub async fn run(client: &str, caller: &Caller, short: bool) -> bool {
    let mut good = checked!(
        caller,
        client,
        blocking,
        ["send"],
        "a blocking send returns the finished task"
    );
    if short {
        return good;
    }
    if caller.transport != "WebSocket" {
        good &= lists(client, caller).await;
    }
    good & checked!(
        caller,
        client,
        polled,
        ["non-blocking send", "get"],
        "a send that does not wait returns a task to poll"
    ) & checked!(
        caller,
        client,
        streamed,
        ["stream"],
        "a stream is the task and then its chunks in order"
    ) & checked!(
        caller,
        client,
        follow_up,
        ["follow-up"],
        "a follow-up needs only the task"
    ) & checked!(
        caller,
        client,
        states,
        ["send"],
        "failing and rejecting are states, not errors"
    ) & checked!(caller, client, reply, ["send", "stream"], "a direct reply is a message")
        & checked!(caller, client, files, ["send"], "files and data go there and back")
        & checked!(
            caller,
            client,
            canceled,
            ["cancel", "subscribe"],
            "a task is canceled and its subscribers get the end"
        )
        & checked!(
            caller,
            client,
            resumed,
            ["subscribe"],
            "a broken subscription is resumed"
        )
        & checked!(caller, client, card, ["card"], "the card declares what the agent can")
        & checked!(caller, client, errors, ["errors"], "errors have their types")
        & checked!(
            caller,
            client,
            history,
            ["get"],
            "history is cut to the requested length"
        )
        & checked!(
            caller,
            client,
            webhooks,
            ["push configs"],
            "a webhook is stored, replaced, listed and deleted"
        )
        & checked!(caller, client, push, ["push"], "a receiver gets the end of a task")
}
