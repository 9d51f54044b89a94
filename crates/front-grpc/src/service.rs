//! The calls of the service. An unknown session is NOT_FOUND for GetSession alone; the other answers have a field that
//! says it.

use crate::{
    exec::{self, failed, is_told, not_run, rendered},
    files,
    sessions::{self, NOT_FOUND, Renderer},
    settings::GrpcSettings,
    status, v1,
    v1::sandbox_service_server::SandboxService,
};
use atoll_core::{Caller, Core};
use atoll_http::Life;
use atoll_types::{Error, SandboxId};
use futures_util::{Stream, stream};
use std::{pin::Pin, sync::Arc};
use tonic::{Request, Response, Status};

/// The service over a core.
pub(crate) struct Service {
    core: Core,
    settings: Arc<GrpcSettings>,
}

type CallResult<T> = Result<Response<T>, Status>;

fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    request.extensions().get::<Caller>().cloned().ok_or_else(|| Status::internal("the caller is not known"))
}

fn refused(error: Error) -> Status {
    status::of(&error)
}

impl Service {
    pub(crate) fn new(core: Core, settings: Arc<GrpcSettings>) -> Self {
        Self { core, settings }
    }

    /// The sandbox of the caller's session.
    async fn sandbox(&self, caller: &Caller, id: &str) -> Result<Option<SandboxId>, Status> {
        let found = sessions::find(&self.core, caller, id).await.map_err(refused)?;
        Ok(found.map(|record| record.id))
    }
}

/// An answer that says what went wrong with the session, or the call's status.
fn in_band_answer<T>(error: Error, in_band: impl FnOnce(String) -> T) -> CallResult<T> {
    match status::is_about_session(&error) {
        true => Ok(Response::new(in_band(error.message))),
        false => Err(refused(error)),
    }
}

fn in_band_answer_of_command(error: Error) -> CallResult<v1::ExecResponse> {
    match is_told(&error) {
        true => Ok(Response::new(not_run(error.message, false))),
        false => Err(refused(error)),
    }
}

#[async_trait::async_trait]
impl SandboxService for Service {
    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> CallResult<v1::CreateSessionResponse> {
        let caller = caller(&request)?;
        let made = sessions::create(&self.core, &self.settings, &caller, request.into_inner()).await;
        let session = Renderer::new(&self.core).info(&made.map_err(refused)?)?;
        Ok(Response::new(v1::CreateSessionResponse { session: Some(session) }))
    }

    async fn destroy_session(
        &self,
        request: Request<v1::DestroySessionRequest>,
    ) -> CallResult<v1::DestroySessionResponse> {
        let caller = caller(&request)?;
        let sandbox = self.sandbox(&caller, &request.get_ref().session_id).await?;
        if let Some(sandbox) = sandbox {
            self.core.sandboxes.destroy(&caller, sandbox).await.map_err(refused)?;
        }
        Ok(Response::new(v1::DestroySessionResponse { success: sandbox.is_some() }))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> CallResult<v1::GetSessionResponse> {
        let caller = caller(&request)?;
        let found = sessions::find(&self.core, &caller, &request.get_ref().session_id).await;
        let found = found.map_err(refused)?.ok_or_else(|| Status::not_found(NOT_FOUND))?;
        let session = Renderer::new(&self.core).info(&found)?;
        Ok(Response::new(v1::GetSessionResponse { session: Some(session) }))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> CallResult<v1::ListSessionsResponse> {
        let caller = caller(&request)?;
        let found = sessions::all(&self.core, &caller).await.map_err(refused)?;
        let mut renderer = Renderer::new(&self.core);
        let sessions = found.iter().map(|record| renderer.info(record)).collect::<Result<_, _>>()?;
        Ok(Response::new(v1::ListSessionsResponse { sessions }))
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> CallResult<v1::ExecResponse> {
        let caller = caller(&request)?;
        let Some(sandbox) = self.sandbox(&caller, &request.get_ref().session_id).await? else {
            return Ok(Response::new(not_run(NOT_FOUND, false)));
        };
        match exec::run(&self.core, &caller, sandbox, request.into_inner()).await {
            Ok(outcome) => {
                let mut response = Response::new(rendered(&outcome));
                response.extensions_mut().insert(outcome.held);
                Ok(response)
            }
            Err(error) => in_band_answer_of_command(error),
        }
    }

    type ExecStreamStream = Pin<Box<dyn Stream<Item = Result<v1::ExecStreamResponse, Status>> + Send>>;

    async fn exec_stream(
        &self,
        request: Request<v1::ExecStreamRequest>,
    ) -> CallResult<Self::ExecStreamStream> {
        let caller = caller(&request)?;
        let life = request.extensions().get::<Life>().cloned();
        let only = |message: String| -> CallResult<Self::ExecStreamStream> {
            Ok(Response::new(Box::pin(stream::iter([Ok(failed(message))]))))
        };
        let Some(sandbox) = self.sandbox(&caller, &request.get_ref().session_id).await? else {
            return only(NOT_FOUND.into());
        };
        match exec::stream(&self.core, &caller, sandbox, request.into_inner(), life).await {
            Ok(events) => Ok(Response::new(Box::pin(events))),
            Err(error) if is_told(&error) => only(error.message),
            Err(error) => Err(refused(error)),
        }
    }

    async fn write_file(&self, request: Request<v1::WriteFileRequest>) -> CallResult<v1::WriteFileResponse> {
        let caller = caller(&request)?;
        let failed = |error| v1::WriteFileResponse { success: false, error: Some(error) };
        let Some(sandbox) = self.sandbox(&caller, &request.get_ref().session_id).await? else {
            return Ok(Response::new(failed(NOT_FOUND.into())));
        };
        match files::write(&self.core, &caller, sandbox, request.into_inner()).await {
            Ok(()) => Ok(Response::new(v1::WriteFileResponse { success: true, error: None })),
            Err(error) => in_band_answer(error, failed),
        }
    }

    async fn read_file(&self, request: Request<v1::ReadFileRequest>) -> CallResult<v1::ReadFileResponse> {
        let caller = caller(&request)?;
        let failed = |error| v1::ReadFileResponse { success: false, content: None, error: Some(error) };
        let v1::ReadFileRequest { session_id, path } = request.into_inner();
        let Some(sandbox) = self.sandbox(&caller, &session_id).await? else {
            return Ok(Response::new(failed(NOT_FOUND.into())));
        };
        match files::read(&self.core, &caller, sandbox, &path).await {
            Ok((content, held)) => {
                let answer = v1::ReadFileResponse { success: true, content: Some(content), error: None };
                let mut response = Response::new(answer);
                response.extensions_mut().insert(held);
                Ok(response)
            }
            Err(error) => in_band_answer(error, failed),
        }
    }

    async fn pip_install(&self, request: Request<v1::PipInstallRequest>) -> CallResult<v1::ExecResponse> {
        let caller = caller(&request)?;
        let v1::PipInstallRequest { session_id, packages } = request.into_inner();
        let Some(sandbox) = self.sandbox(&caller, &session_id).await? else {
            return Ok(Response::new(not_run(NOT_FOUND, false)));
        };
        match exec::install(&self.core, &caller, sandbox, &packages).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(error) => in_band_answer_of_command(error),
        }
    }
}
