# find_package(deepram) defines the targets deepram::deepram (shared) and deepram::deepram_static.

get_filename_component(_deepram_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET deepram::deepram)
    add_library(deepram::deepram SHARED IMPORTED)
    set_target_properties(deepram::deepram PROPERTIES
        IMPORTED_LOCATION "${_deepram_prefix}/lib/libdeepram.so"
        IMPORTED_NO_SONAME TRUE
        INTERFACE_INCLUDE_DIRECTORIES "${_deepram_prefix}/include")
endif()

if(NOT TARGET deepram::deepram_static)
    add_library(deepram::deepram_static STATIC IMPORTED)
    set_target_properties(deepram::deepram_static PROPERTIES
        IMPORTED_LOCATION "${_deepram_prefix}/lib/libdeepram.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_deepram_prefix}/include"
        INTERFACE_LINK_LIBRARIES "m;dl;rt;pthread")
endif()

unset(_deepram_prefix)
