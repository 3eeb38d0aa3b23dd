# The image of Windows nodes: the worker, which carries home what a plugin on such a node has written. It takes a machine
# that runs containers of Windows, since its base cannot be run, nor passed on, elsewhere:
#
#   docker build --file scripts/release/windows.Dockerfile --tag IMAGE FOLDER        FOLDER has sonobuoy.exe
#
# The base has to be of the nodes' version of Windows, or one that they can run: --build-arg BASE=...
ARG BASE=mcr.microsoft.com/windows/nanoserver:ltsc2022
FROM ${BASE}
COPY sonobuoy.exe C:/sonobuoy.exe
# Pods name it as on Linux, where it is `/sonobuoy`: Windows adds the ending, and takes the drive of its own folder.
WORKDIR C:/
ENTRYPOINT ["C:\\sonobuoy.exe"]
