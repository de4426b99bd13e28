# A stand-in for the vendor's SDK: the macros that a project calls, and the targets that they make, around the stand-in of its interface.
get_filename_component(MOCK "$ENV{GAP_SDK_HOME}/../pmsis_mock" ABSOLUTE)

macro(setup_cmake)
  file(STRINGS "${CMAKE_BINARY_DIR}/sdk.config" SDK_PLATFORM REGEX "^CONFIG_PLATFORM_[A-Z]+=y")
  add_custom_target(menuconfig)
  set(CMAKE_C_COMPILER riscv32-unknown-elf-gcc)
  set(CMAKE_ASM_COMPILER riscv32-unknown-elf-gcc)
  set(CMAKE_C_FLAGS "-Wall -Wextra -Werror")
endmacro()

macro(setupos TARGET)
  file(GLOB mock_sources "${MOCK}/*.c")
  target_sources(${TARGET} PRIVATE ${mock_sources})
  target_include_directories(${TARGET} PRIVATE "${MOCK}")
  target_compile_options(${TARGET} PRIVATE -D_GNU_SOURCE -fno-pie)
  target_link_options(${TARGET} PRIVATE -no-pie)
  target_link_libraries(${TARGET} PRIVATE pthread)
  # As in the SDK: a variable of make, which takes it from the environment.
  add_custom_target(run DEPENDS ${TARGET}
    COMMAND "$ENV{GAP_SDK_HOME}/gapy" --platform=${SDK_PLATFORM} run --binary=${CMAKE_BINARY_DIR}/${TARGET} $(runner_args))
endmacro()
